"""Opens the storage that a person, a configuration or a record names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

import msgspec

from core_sdk._ground.environment import path_here, storage_deadline_s
from core_sdk._ground.records import RETENTION_KEYS, STORAGE_KEYS, RetentionPolicy
from core_sdk._home.storage._storage import Storage
from core_sdk._home.storage.directory._storage import DirectoryStorage
from core_sdk.errors import UnknownStorageError

if TYPE_CHECKING:
    from core_sdk._home.storage.bucket._bucket import Bucket

_TYPES = {"gs": "gcs", "s3": "s3", "azure": "azure"}
_QUERY_KEYS = {"gs": set[str](), "s3": {"endpoint_url"}, "azure": {"account_url"}}
_BUCKET_NAME = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._$-]*")
_WHAT_TO_WRITE = (
    "write file:///directory, gs://bucket/prefix, azure://container/prefix, s3://bucket/prefix, or "
    "s3://bucket/prefix?endpoint_url=http://host:port for a server other than Amazon's"
)


class NamedBucket(msgspec.Struct, frozen=True):
    """A bucket that a configuration or a URL names."""

    kind: str
    name: str
    prefix: str
    options: Mapping[str, Any]
    """The arguments of its adapter. Credentials that they lack come from the environment."""
    temp_dir: Path | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` for options that contradict each other. Asks no store."""
        from core_sdk._home.storage.bucket import check_azure, check_s3  # a directory needs none of it

        match self.kind:
            case "s3":
                check_s3(**self.options)
            case "azure":
                check_azure(**self.options)


def open_storage(spec: str | os.PathLike[str] | Mapping[str, Any] | None, default: Path) -> Storage:
    """Opens the storage that a person asked for, checks that it can be written to, and begins to sweep it.

    `spec` is a directory, a URL (`file://`, `gs://bucket/prefix`, `s3://…`, `azure://container/prefix`), or the
    `checkpoint_storage` of an experiment configuration: `{"type": "directory", "container_path": …}`,
    `{"type": "shared_fs", "host_path": …, "storage_path": …}`, or of type `gcs`, `s3` or `azure`.
    Raises `ValueError` or `TypeError` naming what cannot be honoured, `StorageError`, `MissingDependencyError`.
    """
    storage = _storage(named_storage(spec, default))
    storage.check_writable()
    storage.begin_sweep()
    return storage


def check_storage(spec: str | Mapping[str, Any], default: Path) -> None:
    """Raises what `open_storage` would raise, but asks no bucket. A mapping without a type names no storage."""
    if (isinstance(spec, str) or "type" in spec) and isinstance(named := named_storage(spec, default), Path):
        DirectoryStorage(named).check_writable()


def storage_from_url(url: str) -> Storage:
    """Opens the storage that has this `url`, with credentials from the environment.

    Raises `UnknownStorageError`, `MissingDependencyError`, `StorageError`.
    """
    return _storage(_named_by_url(url))


def named_storage(spec: str | os.PathLike[str] | Mapping[str, Any] | None, default: Path) -> Path | NamedBucket:
    """Returns the directory or bucket that `spec` names, without looking whether it exists."""
    if spec is None:
        return default
    if isinstance(spec, Mapping):
        RetentionPolicy.checked(spec)
        return _named_by_config(spec)
    spec = os.fspath(spec)
    if not isinstance(spec, str):
        raise TypeError(f"checkpoint_storage is a string, a path or a mapping, not {type(spec).__name__}")
    if not spec:
        raise ValueError("checkpoint_storage is empty; leave it out for the default, a directory in the home")
    if "://" in spec:
        return _named_by_url(spec)
    # A text that looks like a mistyped URL: nobody would look for checkpoints in a directory of that name.
    if re.match(r"[^/]*:|(gs|s3|azure)//", spec):
        shown = _shown(spec)
        reason = f"it is not a URL: {_WHAT_TO_WRITE}. For a directory of this name write ./{shown}"
        raise UnknownStorageError(shown, reason)
    return Path(spec).expanduser()


def _named_by_url(url: str) -> Path | NamedBucket:
    parts = urlsplit(url)
    if parts.scheme in _TYPES:
        return _bucket_by_url(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise UnknownStorageError(_shown(url), f"it is not the URL of a storage; {_WHAT_TO_WRITE}")
    path = Path(os.fsdecode(unquote_to_bytes(parts.path)))
    if not path.is_absolute():
        raise UnknownStorageError(url, "it has no absolute path: write file:///mnt/checkpoints, with three slashes")
    return path_here(path)


def _bucket_by_url(url: str) -> NamedBucket:
    parts = urlsplit(url)
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    if unknown := sorted(query.keys() - _QUERY_KEYS[parts.scheme]):
        raise UnknownStorageError(_shown(url), f"its query has {', '.join(unknown)}, which means nothing here")
    if parts.fragment or "@" in parts.netloc:
        reason = "write it as scheme://bucket/prefix; credentials go into the environment"
        raise UnknownStorageError(f"{parts.scheme}://…", reason)
    try:
        return NamedBucket(_TYPES[parts.scheme], _checked_name(parts.netloc), _checked_prefix(parts.path), query)
    except ValueError as error:
        raise UnknownStorageError(_shown(url), str(error)) from error


def _shown(url: str) -> str:
    """Returns the URL without the credentials that it may hold."""
    return re.sub(r"(?<=//)[^/@]*@", "…@", url).partition("?")[0]


def _named_by_config(config: Mapping[str, Any]) -> Path | NamedBucket:
    kind = config.get("type")
    if kind not in tuple(STORAGE_KEYS):
        raise ValueError(
            f"checkpoint_storage has type {kind!r}; it must be one of {', '.join(map(repr, STORAGE_KEYS))}"
        )
    given = {key: value for key, value in config.items() if key not in (*RETENTION_KEYS, "type") and value is not None}
    if unknown := sorted(map(str, given.keys() - STORAGE_KEYS[kind])):
        raise ValueError(
            f"checkpoint_storage of type {kind!r} has {', '.join(unknown)}, which this version cannot honour; it knows "
            f"{', '.join(sorted(STORAGE_KEYS[kind]))}"
        )
    for key, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"checkpoint_storage has a {key} that is no string, but {type(value).__name__}")
    match kind:
        case "directory":
            return _absolute_path(given, "container_path")
        case "shared_fs":
            return _shared_directory(_absolute_path(given, "host_path"), given.get("storage_path"))
        case _:
            return _bucket_by_config(kind, {key: value for key, value in given.items() if value})


def _absolute_path(config: Mapping[str, str], key: str) -> Path:
    if not PurePosixPath(config.get(key, "")).is_absolute():
        raise ValueError(f"checkpoint_storage needs {key}, an absolute path, and has {config.get(key)!r}")
    return Path(config[key])


def _shared_directory(host_path: Path, storage_path: str | None) -> Path:
    # An absolute one is allowed if it lies below.
    directory = Path(os.path.normpath(host_path / (storage_path or "")))
    if not directory.is_relative_to(os.path.normpath(host_path)):
        raise ValueError(f"checkpoint_storage has storage_path {storage_path!r}, which is not within {host_path}")
    return directory


def _bucket_by_config(kind: str, config: dict[str, str]) -> NamedBucket:
    key = "container" if kind == "azure" else "bucket"
    if key not in config:
        raise ValueError(f"checkpoint_storage of this type needs {key}")
    # Some users write a path after the container's name.
    name, _, path = config.pop(key).strip("/").partition("/")
    temp_dir, prefix = config.pop("temp_dir", None), f"{path}/{config.pop('prefix', '')}"
    try:
        name, prefix = _checked_name(name), _checked_prefix(prefix)
        return NamedBucket(kind, name, prefix, config, Path(temp_dir).expanduser() if temp_dir else None)
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


def _storage(named: Path | NamedBucket) -> Storage:
    if isinstance(named, Path):
        return DirectoryStorage(named)
    # A directory needs none of it, and each store needs its own library only.
    from core_sdk._home.storage.bucket import BucketStorage, Limits

    bucket: Bucket
    match named.kind:
        case "gcs":
            from core_sdk._home.storage.bucket.gcs._bucket import GcsBucket

            bucket = GcsBucket(named.name, named.prefix)
        case "s3":
            from core_sdk._home.storage.bucket.s3._bucket import S3Bucket

            bucket = S3Bucket(named.name, named.prefix, **named.options)
        case _:
            from core_sdk._home.storage.bucket.azure._bucket import AzureBucket

            bucket = AzureBucket(named.name, named.prefix, **named.options)
    return BucketStorage(bucket, temp_dir=named.temp_dir, limits=Limits(deadline_s=storage_deadline_s()))
