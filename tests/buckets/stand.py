"""A server with the fault proxy before it, and a storage of its bucket on either side of the proxy."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from buckets.proxy import Proxy, start_proxy
from buckets.servers import BucketServer
from saving import checkpoint_ids

from core_sdk._home.storage.bucket._bucket import Bucket
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._storage import BucketStorage

CLOCK = ".leases/clock"
"""The one object that belongs to no checkpoint, and stays."""


@dataclass(frozen=True)
class Stand:
    server: BucketServer
    proxy: Proxy
    bucket: Bucket
    """Reached directly."""
    proxied: Bucket
    """Reached through the proxy."""
    direct: BucketStorage
    faulty: BucketStorage
    """Reached through the proxy."""
    sweeper: BucketStorage
    """Reached directly; takes every lease for abandoned, unless its owner lives on this machine."""

    def object_names(self) -> list[str]:
        return [item.name for item in self.bucket.list()]

    def remains(self) -> list[str]:
        """Returns the objects and uploads that remain after a sweep and the deletion of all listed checkpoints."""
        self.sweeper.sweep()
        for storage_id in checkpoint_ids(self.direct):
            self.direct.delete(storage_id)
        num_uploads = self.bucket.abort_uploads("")
        return [name for name in self.object_names() if name != CLOCK] + ["an upload in parts"] * num_uploads


@contextlib.contextmanager
def start_stand(
    server: BucketServer, open_bucket: Callable[[str], Bucket], temp_dir: Path, limits: Limits
) -> Iterator[Stand]:
    """`limits` are set for the storage behind the proxy; the other storages have ample time."""
    with start_proxy(server.address) as proxy:
        url = prefixed(server.make_bucket(), uuid.uuid4().hex)
        # The address may stand in the URL's query.
        proxied_url = url.replace(_quoted(server.address), _quoted(proxy.address))
        bucket = _opened(server, open_bucket, url)
        proxied = _opened(server, open_bucket, proxied_url, proxy.address)
        ample = replace(limits, deadline_s=60.0)
        yield Stand(
            server=server,
            proxy=proxy,
            bucket=bucket,
            proxied=proxied,
            direct=BucketStorage(bucket, temp_dir=temp_dir, limits=ample),
            faulty=BucketStorage(proxied, temp_dir=temp_dir, limits=limits),
            sweeper=BucketStorage(bucket, temp_dir=temp_dir, limits=replace(ample, lease_s=-1.0)),
        )


def prefixed(url: str, prefix: str) -> str:
    """Returns the URL of what lies under `prefix` in the same bucket."""
    place, question, query = url.partition("?")
    return f"{place.rstrip('/')}/{prefix}{question}{query}"


def _opened(
    server: BucketServer, open_bucket: Callable[[str], Bucket], url: str, address: tuple[str, int] | None = None
) -> Bucket:
    """Opens it with the server's variables in the environment, which some clients read only at their first request."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.variables(address).items():
            patch.setenv(name, value)
        bucket = open_bucket(url)
        list(bucket.list())
    return bucket


def _quoted(address: tuple[str, int]) -> str:
    return quote(f"{address[0]}:{address[1]}", safe="")
