"""Copies out of a checkpoint, each file verified before it gets its name."""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from core_sdk.errors import NotEnoughSpaceError, UnsafePathError
from core_sdk.files import write_atomically
from core_sdk.records import FileEntry, Manifest
from core_sdk.storage._checksum import checksum, copy, in_threads
from core_sdk.storage._names import MANIFEST_NAME
from core_sdk.storage._verify import check_listing, compare, naming_unreadable


def download(source: Path, target: Path, manifest: Manifest, names: Sequence[str]) -> None:
    """Copies `names` and the manifest, which comes last: where it is, the download is complete."""
    check_listing(source, manifest, names)
    target.mkdir(parents=True, exist_ok=True)
    files = [name for name in names if not name.endswith("/")]
    needed_bytes = sum(manifest.files[name].size_bytes for name in files if not _has_size(target, name, manifest))
    _check_space(target, needed_bytes)
    (target / MANIFEST_NAME).unlink(missing_ok=True)
    for name in names:
        _make_directory(target, name if name.endswith("/") else name.rpartition("/")[0])
    try:
        with in_threads(lambda name: _fetch(source, target, manifest, name), files) as entries:
            for _ in naming_unreadable(entries, manifest, files):
                pass
        write_atomically(target / MANIFEST_NAME, (source / MANIFEST_NAME).read_bytes())
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NotEnoughSpaceError(target, needed_bytes, shutil.disk_usage(target).free) from error
        raise


def _fetch(source: Path, target: Path, manifest: Manifest, name: str) -> FileEntry:
    if _has_size(target, name, manifest) and checksum(target / name) == manifest.files[name]:
        return manifest.files[name]
    part = (target / name).with_name(f".{uuid.uuid4().hex}.part")
    try:
        entry = copy(source / name, part)
        compare(manifest, name, entry)
        part.replace(target / name)
    finally:
        part.unlink(missing_ok=True)
    return entry


def _has_size(target: Path, name: str, manifest: Manifest) -> bool:
    path = target / name
    return path.is_file() and not path.is_symlink() and path.stat().st_size == manifest.files[name].size_bytes


def _check_space(target: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(target).free
    if needed_bytes > free_bytes:
        raise NotEnoughSpaceError(target, needed_bytes, free_bytes)


def _make_directory(target: Path, name: str) -> None:
    """Refuses to pass through a symbolic link: it may lead outside `target`."""
    directory = target
    for component in filter(None, name.split("/")):
        directory = directory / component
        if directory.is_symlink():
            raise UnsafePathError("the file name", name, f"leads through {directory}, a symbolic link")
        directory.mkdir(exist_ok=True)
