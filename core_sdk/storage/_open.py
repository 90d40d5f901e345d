"""Opens the storage that a configuration or a record names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from core_sdk.environment import path_here
from core_sdk.errors import UnknownStorageError
from core_sdk.records import RETENTION_KEYS, RetentionPolicy
from core_sdk.storage._storage import Storage
from core_sdk.storage.directory._storage import DirectoryStorage

_CLOUD_TYPES = ("azure", "gcs", "s3")
_CLOUD_SCHEMES = ("azure", "gs", "s3")
_WHAT_TO_WRITE = (
    "write file:///directory, gs://bucket/prefix, azure://container/prefix, s3://bucket/prefix, or "
    "s3://bucket/prefix?endpoint_url=http://host:port for a server other than Amazon's"
)


def open_storage(spec: str | os.PathLike[str] | Mapping[str, Any] | None, default: Path) -> Storage:
    """Opens the storage that a person asked for, checks that it can be written to, and begins to sweep it.

    `spec` is a directory, a URL (`file://`, `gs://bucket/prefix`, `s3://…`, `azure://container/prefix`), or the
    `checkpoint_storage` of an experiment configuration: `{"type": "directory", "container_path": …}`,
    `{"type": "shared_fs", "host_path": …, "storage_path": …}`, or of type `gcs`, `s3` or `azure`.
    Raises `ValueError` or `TypeError` naming what cannot be honoured, `StorageError`, `MissingDependencyError`.
    """
    storage = _storage(spec, default)
    storage.check_writable()
    storage.begin_sweep()
    return storage


def check_storage(spec: str | Mapping[str, Any], default: Path) -> None:
    """Raises what `open_storage` would raise, but asks no bucket."""
    if isinstance(spec, str) and urlsplit(spec).scheme not in _CLOUD_SCHEMES:
        _storage(spec, default).check_writable()
    elif isinstance(spec, str) or spec.get("type") in _CLOUD_TYPES:
        from core_sdk.storage.bucket import CONFIG_KEYS, check_bucket  # as in `storage_from_url`

        if isinstance(spec, Mapping):
            _check_keys(spec, CONFIG_KEYS[spec["type"]])
        check_bucket(spec)
    elif "type" in spec:
        _storage(spec, default).check_writable()


def storage_from_url(url: str) -> Storage:
    """Opens the storage that has this `url`. Raises `UnknownStorageError`."""
    parts = urlsplit(url)
    if parts.scheme in _CLOUD_SCHEMES:
        from core_sdk.storage.bucket import bucket_storage_from_url  # a directory needs none of it

        return bucket_storage_from_url(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        raise UnknownStorageError(_shown(url), f"it is not the URL of a storage; {_WHAT_TO_WRITE}")
    path = Path(os.fsdecode(unquote_to_bytes(parts.path)))
    if not path.is_absolute():
        raise UnknownStorageError(url, "it has no absolute path: write file:///mnt/checkpoints, with three slashes")
    return DirectoryStorage(path_here(path))


def _storage(spec: str | os.PathLike[str] | Mapping[str, Any] | None, default: Path) -> Storage:
    if spec is None:
        return DirectoryStorage(default)
    if isinstance(spec, Mapping):
        RetentionPolicy.checked(spec)
        return _configured(spec)
    spec = os.fspath(spec)
    if not isinstance(spec, str):
        raise TypeError(f"checkpoint_storage is a string, a path or a mapping, not {type(spec).__name__}")
    if not spec:
        raise ValueError("checkpoint_storage is empty; leave it out for the default, a directory in the home")
    if "://" in spec:
        return storage_from_url(spec)
    _check_path(spec)
    return DirectoryStorage(Path(spec).expanduser())


def _check_path(spec: str) -> None:
    """Refuses a text that looks like a mistyped URL: nobody would look for checkpoints in a directory of that name."""
    if re.match(r"[^/]*:|(gs|s3|azure)//", spec):
        shown = _shown(spec)
        reason = f"it is not a URL: {_WHAT_TO_WRITE}. For a directory of this name write ./{shown}"
        raise UnknownStorageError(shown, reason)


def _shown(url: str) -> str:
    """The URL without the credentials that it may hold."""
    return re.sub(r"(?<=//)[^/@]*@", "…@", url).partition("?")[0]


def _configured(config: Mapping[str, Any]) -> Storage:
    if config.get("type") not in _CLOUD_TYPES:
        return DirectoryStorage(_configured_directory(config))
    from core_sdk.storage.bucket import CONFIG_KEYS, bucket_storage_from_config  # as in `storage_from_url`

    _check_keys(config, CONFIG_KEYS[config["type"]])
    return bucket_storage_from_config(config)


def _configured_directory(config: Mapping[str, Any]) -> Path:
    kind = config.get("type")
    if kind == "directory":
        _check_keys(config, {"container_path"})
        return _absolute_path(config, "container_path")
    if kind == "shared_fs":
        # The last two say how a container mounts the directory; there is no container here.
        _check_keys(config, {"host_path", "storage_path", "container_path", "propagation"})
        return _shared_directory(_absolute_path(config, "host_path"), config.get("storage_path"))
    raise ValueError(
        f"checkpoint_storage has type {kind!r}; it must be one of 'shared_fs', 'directory', 'gcs', 's3', 'azure'"
    )


def _check_keys(config: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(map(str, config.keys() - known - set(RETENTION_KEYS) - {"type"})):
        raise ValueError(
            f"checkpoint_storage of type {config['type']!r} has {', '.join(unknown)}, which this version cannot "
            f"honour; it knows {', '.join(sorted(known))}"
        )


def _absolute_path(config: Mapping[str, Any], key: str) -> Path:
    value = config.get(key)
    if not isinstance(value, str) or not PurePosixPath(value).is_absolute():
        raise ValueError(f"checkpoint_storage needs {key}, an absolute path, and has {value!r}")
    return Path(value)


def _shared_directory(host_path: Path, storage_path: object) -> Path:
    if storage_path is None:
        return host_path
    if not isinstance(storage_path, str):
        raise ValueError(f"checkpoint_storage has storage_path {storage_path!r}; it must be a string")
    # An absolute one is allowed if it lies below.
    directory = Path(os.path.normpath(host_path / storage_path))
    if not directory.is_relative_to(os.path.normpath(host_path)):
        raise ValueError(f"checkpoint_storage has storage_path {storage_path!r}, which is not within {host_path}")
    return directory
