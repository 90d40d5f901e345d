"""Compares a checkpoint with its manifest."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from core_sdk._ground.files import NotRegularError, read_regular
from core_sdk._ground.records import MANIFEST_NAME, FileEntry, Manifest, decode_manifest
from core_sdk._home.storage._checksum import checksum, in_threads
from core_sdk._home.storage._manifest import selected
from core_sdk._home.storage._names import RESERVED_NAMES, check_file_name, linked_directory, parents
from core_sdk._home.storage._storage import Selector
from core_sdk._home.storage._tree import walk
from core_sdk.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointTooNewError,
    UnsafePathError,
)

_FORMAT = 1
ADDED = "was not there when the checkpoint was written"
_NOT_REGULAR = "is not a regular file any more"


def is_checkpoint(directory: Path) -> bool:
    """Returns whether this is a checkpoint, perhaps a damaged one, rather than some directory of the user's."""
    return any(os.path.lexists(directory / name) for name in RESERVED_NAMES)


def read_manifest(directory: Path) -> Manifest:
    """Reads the manifest in `directory`, whose name is the storage id."""
    storage_id = directory.name
    if not is_checkpoint(directory):
        raise CheckpointNotFoundError(storage_id, str(directory.parent))
    if directory.is_symlink():
        raise CheckpointDamagedError(storage_id, ".", "is a symbolic link, which may lead out of the storage")
    try:
        content = read_regular(directory / MANIFEST_NAME)
    except FileNotFoundError as error:
        raise CheckpointDamagedError(storage_id, MANIFEST_NAME, "is missing") from error
    except (NotRegularError, IsADirectoryError) as error:
        raise CheckpointDamagedError(storage_id, MANIFEST_NAME, _NOT_REGULAR) from error
    return checked_manifest(content, storage_id)


def checked_manifest(content: bytes, storage_id: str) -> Manifest:
    """Decodes and checks a manifest. Raises `CheckpointDamagedError`, `CheckpointTooNewError`."""
    try:
        manifest = decode_manifest(content)
    except (ValueError, msgspec.DecodeError) as error:
        raise CheckpointDamagedError(storage_id, MANIFEST_NAME, str(error)) from error
    _check_manifest(manifest, storage_id)
    return manifest


def _check_manifest(manifest: Manifest, storage_id: str) -> None:
    if manifest.format > _FORMAT:
        raise CheckpointTooNewError(storage_id, manifest.format, _FORMAT)
    if manifest.storage_id != storage_id:
        problem = f"belongs to another checkpoint, {manifest.storage_id}"
        raise CheckpointDamagedError(storage_id, MANIFEST_NAME, problem)
    for name in (*manifest.resources, *manifest.links_by_name, *manifest.removed):
        try:
            check_file_name(name)
        except UnsafePathError as error:
            raise CheckpointDamagedError(
                storage_id, MANIFEST_NAME, f"names a file that is not safe: {error}"
            ) from error
    _check_links(manifest)
    for name in manifest.files:
        if name.endswith("/") or any(parent in manifest.files for parent in parents(name)):
            raise CheckpointDamagedError(storage_id, MANIFEST_NAME, f"calls {name!r} a file where a directory is")


def _check_links(manifest: Manifest) -> None:
    """Raises `CheckpointDamagedError` for a link that does not lead to a directory of the checkpoint."""
    links = manifest.links_by_name
    for name, target in links.items():
        if f"{linked_directory(name, target)}/" not in manifest.directories:
            problem = f"has a link {name!r} that leads outside, or to no directory"
            raise CheckpointDamagedError(manifest.storage_id, MANIFEST_NAME, problem)
    for name in (*manifest.resources, *links):
        if any(parent in links for parent in parents(name)):
            raise CheckpointDamagedError(manifest.storage_id, MANIFEST_NAME, f"names {name!r} behind a link")


def verify(directory: Path, manifest: Manifest, selector: Selector | None = None) -> None:
    """Raises `CheckpointDamagedError` for the first bad file among those selected.

    Looks for missing, additional and resized files first, since that needs no reading.
    """
    names = check_listing(directory, manifest, selector)
    files = [name for name in names if name in manifest.files]
    with in_threads(checksum, [directory / name for name in files]) as entries:
        for name, entry in zip(files, naming_unreadable(entries, manifest, files), strict=True):
            compare(manifest, name, entry)


def check_listing(directory: Path, manifest: Manifest, selector: Selector | None) -> list[str]:
    """Compares names, kinds and sizes only, and returns the selected names, sorted.

    An additional file is an error unless the selector rejects it.
    """
    found = {name: entry.stat(follow_symlinks=False) for name, entry in walk(directory) if name != MANIFEST_NAME}
    expected, links = manifest.resources, manifest.links_by_name
    checked = sorted(selected((expected.keys() | links.keys() | found.keys()) - set(manifest.removed), selector))
    for name in checked:
        problem = _problem_of_status(name, expected.get(name), found.get(name))
        if name in links:
            problem = _problem_of_link(directory / name, links[name])
        if problem:
            raise CheckpointDamagedError(manifest.storage_id, name, problem)
    return checked


def compare(manifest: Manifest, name: str, found: FileEntry) -> None:
    """Raises `CheckpointDamagedError` if the file `name` is not what was written."""
    expected = manifest.files[name]
    problem = problem_of_size(expected.size_bytes, found.size_bytes)
    if problem is None and found != expected:
        problem = f"has changed: its CRC-32C is {found.crc32c}, and was {expected.crc32c} when it was written"
    if problem is not None:
        raise CheckpointDamagedError(manifest.storage_id, name, problem)


def naming_unreadable(entries: Iterator[FileEntry], manifest: Manifest, files: list[str]) -> Iterator[FileEntry]:
    """Yields `entries`, one for each of `files`. Raises `CheckpointDamagedError` for a file that cannot be read."""
    for name in files:
        try:
            yield next(entries)
        except OSError as error:
            if isinstance(error, NotRegularError):
                raise CheckpointDamagedError(manifest.storage_id, name, _NOT_REGULAR) from error
            if error.errno in (errno.EIO, errno.ENOENT):
                problem = f"cannot be read: {os.strerror(error.errno)}"
                raise CheckpointDamagedError(manifest.storage_id, name, problem) from error
            raise


def _problem_of_status(name: str, expected_bytes: int | None, found: os.stat_result | None) -> str | None:
    if expected_bytes is None:
        return ADDED
    if found is None:
        return "is missing"
    if name.endswith("/"):
        return None
    if not stat.S_ISREG(found.st_mode):
        return _NOT_REGULAR
    return problem_of_size(expected_bytes, found.st_size)


def _problem_of_link(path: Path, target: str) -> str | None:
    if not os.path.lexists(path):
        return "is missing"
    return None if path.is_symlink() and path.readlink() == Path(target) else f"is not a link to {target} any more"


def problem_of_size(expected_bytes: int, found_bytes: int) -> str | None:
    if found_bytes == expected_bytes:
        return None
    change = "truncated" if found_bytes < expected_bytes else "extended"
    return f"was {change}: it has {found_bytes:,} bytes, and had {expected_bytes:,} when it was written"
