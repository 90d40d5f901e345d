"""Servers by their names, and buckets by their URLs; each brings the library of its store when it is asked for."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

from buckets.servers import BucketServer
from parts import require

from core_sdk._home.storage.bucket._bucket import Bucket

STARTERS = {
    "fake-gcs-server": ("buckets.gcs", "start_fake_gcs_server"),
    "strict GCS": ("buckets.strict_gcs", "start_strict_gcs"),
    "moto": ("buckets.s3", "start_moto"),
    "SeaweedFS": ("buckets.s3", "start_seaweedfs"),
    "Azurite": ("buckets.azure", "start_azurite"),
}

_SMALLEST_S3_PART = 5 << 20


@contextlib.contextmanager
def servers_on_demand() -> Iterator[Callable[[str], BucketServer]]:
    """Gives the server of this name, of `STARTERS`; all that were started end with the block."""
    started: dict[str, BucketServer] = {}
    with contextlib.ExitStack() as running:

        def start(name: str) -> BucketServer:
            require(name)
            if name not in started:
                module, function = STARTERS[name]
                started[name] = running.enter_context(getattr(importlib.import_module(module), function)())
            return started[name]

        yield start


def bucket_at(url: str) -> Bucket:
    """Returns the bucket at a URL, with the credentials and servers of the environment."""
    parts = urlsplit(url)
    name, prefix = parts.netloc, parts.path.strip("/")
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    if parts.scheme == "gs":
        from core_sdk._home.storage.bucket.gcs._bucket import GcsBucket

        return GcsBucket(name, prefix)
    if parts.scheme == "s3":
        from core_sdk._home.storage.bucket.s3._bucket import S3Bucket

        return S3Bucket(name, prefix, endpoint_url=query.get("endpoint_url"), part_bytes=_SMALLEST_S3_PART)
    from core_sdk._home.storage.bucket.azure._bucket import AzureBucket

    return AzureBucket(name, prefix, account_url=query.get("account_url"))
