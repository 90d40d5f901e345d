"""Opens the bucket that a configuration or a record names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from core_sdk.environment import storage_deadline_s
from core_sdk.errors import UnknownStorageError
from core_sdk.storage.bucket._bucket import Bucket
from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._storage import BucketStorage

CONFIG_KEYS = {
    "gcs": {"bucket", "prefix", "temp_dir"},
    "s3": {"bucket", "prefix", "access_key", "secret_key", "endpoint_url", "temp_dir"},
    "azure": {"container", "connection_string", "account_url", "credential", "temp_dir"},
}
"""The keys that an experiment configuration may have for each type. `temp_dir` is where files are staged."""

_NOT_OPTIONS = {"bucket", "container", "prefix", "temp_dir"}
_TYPES = {"gs": "gcs", "s3": "s3", "azure": "azure"}
_BUCKET_NAME = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]*")
_QUERY_KEYS = {"gs": frozenset[str](), "s3": frozenset({"endpoint_url"}), "azure": frozenset({"account_url"})}


class _Named(NamedTuple):
    """A bucket that a configuration or a URL names."""

    kind: str
    name: str
    prefix: str
    options: Mapping[str, Any]
    """The arguments of its adapter."""


def check_bucket(spec: str | Mapping[str, Any]) -> None:
    """Raises what opening the bucket at a URL, or of a configuration, would raise before the bucket is asked."""
    _named_by_url(spec) if isinstance(spec, str) else _named_by_config(spec)


def bucket_storage_from_url(url: str) -> BucketStorage:
    """Opens the bucket at `url`, with credentials from the environment.

    Raises `UnknownStorageError`, `MissingDependencyError`, `StorageError`.
    """
    return _storage(_bucket(*_named_by_url(url)), None)


def _named_by_url(url: str) -> _Named:
    parts = urlsplit(url)
    shown = url.partition("?")[0]
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    if unknown := sorted(query.keys() - _QUERY_KEYS[parts.scheme]):
        raise UnknownStorageError(shown, f"its query has {', '.join(unknown)}, which means nothing here")
    if parts.fragment or "@" in parts.netloc:
        raise UnknownStorageError(
            f"{parts.scheme}://…", "write it as scheme://bucket/prefix; credentials go into the environment"
        )
    try:
        name, prefix = _checked_name(parts.netloc), _checked_prefix(parts.path)
    except ValueError as error:
        raise UnknownStorageError(shown, str(error)) from error
    return _Named(_TYPES[parts.scheme], name, prefix, query)


def bucket_storage_from_config(config: Mapping[str, Any]) -> BucketStorage:
    """Opens the bucket of `config`, which has a `type` of `CONFIG_KEYS` and only its keys.

    Raises `ValueError` for impossible values, and what `bucket_storage_from_url` raises.
    """
    bucket, temp_dir = _bucket(*_named_by_config(config)), config.get("temp_dir")
    return _storage(bucket, Path(temp_dir).expanduser() if temp_dir else None)


def _named_by_config(config: Mapping[str, Any]) -> _Named:
    for key, value in config.items():
        if value is not None and not isinstance(value, str) and key in CONFIG_KEYS[config["type"]]:
            raise ValueError(f"checkpoint_storage has a {key} that is no string, but {type(value).__name__}")
    given = {key: config[key] for key in CONFIG_KEYS[config["type"]] if config.get(key)}
    name, prefix = _name_and_prefix(given, "container" if config["type"] == "azure" else "bucket")
    options = {key: value for key, value in given.items() if key not in _NOT_OPTIONS}
    return _Named(config["type"], name, prefix, options)


def _storage(bucket: Bucket, temp_dir: Path | None) -> BucketStorage:
    return BucketStorage(bucket, temp_dir=temp_dir, limits=Limits(deadline_s=storage_deadline_s()))


def _bucket(kind: str, name: str, prefix: str, options: Mapping[str, Any]) -> Bucket:
    """Makes the adapter for a store. Credentials that the `options` lack come from the environment."""
    match kind:
        case "gcs":
            from core_sdk.storage.bucket.gcs._bucket import GcsBucket

            return GcsBucket(name, prefix)
        case "s3":
            from core_sdk.storage.bucket.s3._bucket import S3Bucket

            return S3Bucket(name, prefix, **options)
        case _:
            from core_sdk.storage.bucket.azure._bucket import AzureBucket

            return AzureBucket(name, prefix, **options)


def _name_and_prefix(config: Mapping[str, str], key: str) -> tuple[str, str]:
    if key not in config:
        raise ValueError(f"checkpoint_storage of this type needs {key}")
    # Some users write a path after the container's name.
    name, _, path = config[key].strip("/").partition("/")
    try:
        return _checked_name(name), _checked_prefix(f"{path}/{config.get('prefix', '')}")
    except ValueError as error:
        raise ValueError(f"checkpoint_storage cannot be used: {error}") from error


def _checked_name(name: str) -> str:
    if not _BUCKET_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a bucket")
    return name


def _checked_prefix(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or not path.isprintable() or set("?#\\") & set(path):
        raise ValueError(f"the prefix {path!r} has '..', or a character that an object's name must not have")
    return "/".join(parts)
