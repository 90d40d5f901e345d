"""Copying a checkpoint's files into a directory."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.records import MANIFEST_NAME, FileEntry, Manifest
from core_sdk._home.storage._checksum import checksum, copy, in_threads
from core_sdk._home.storage._space import space_for
from core_sdk._home.storage._storage import Selector
from core_sdk._home.storage._verify import check_listing, compare, naming_unreadable
from core_sdk.errors import UnsafePathError


def download(source: Path, target: Path, manifest: Manifest, selector: Selector | None) -> None:
    """Copies files and the manifest out of the directory `source`, each file verified before it gets its name."""
    names = check_listing(source, manifest, selector)
    content = read_regular(source / MANIFEST_NAME)
    with (
        receiving(target, manifest, content, names) as files,
        in_threads(lambda name: _fetch(source, target, manifest, name), files) as entries,
    ):
        for _ in naming_unreadable(entries, manifest, files):
            pass


@contextlib.contextmanager
def receiving(target: Path, manifest: Manifest, content: bytes, names: Sequence[str]) -> Iterator[list[str]]:
    """Prepares the directory `target` for `names`, and yields the files that are not there yet, or not whole.

    The block puts them there. Then the manifest, `content`, is written: where it is, the download is complete. Raises
    `NotEnoughSpaceError`, and `UnsafePathError` for a name that would leave `target`.
    """
    target.mkdir(parents=True, exist_ok=True)
    links = manifest.links_by_name
    files = _missing(target, manifest, [name for name in names if name in manifest.files])
    with space_for(sum(manifest.files[name].size_bytes for name in files), target):
        (target / MANIFEST_NAME).unlink(missing_ok=True)
        for directory in sorted({name.rpartition("/")[0] for name in names}):
            _make_directory(target, directory)
        for name in links.keys() & set(names):
            _make_link(target / name, links[name])
        yield files
        write_atomically(target / MANIFEST_NAME, content)


def _missing(target: Path, manifest: Manifest, files: Sequence[str]) -> list[str]:
    with in_threads(lambda name: _is_there(target / name, manifest.files[name]), files) as answers:
        return [name for name, is_there in zip(files, answers, strict=True) if not is_there]


def _is_there(path: Path, entry: FileEntry) -> bool:
    if not path.is_file() or path.is_symlink() or path.stat().st_size != entry.size_bytes:
        return False
    return entry == checksum(path)


def _fetch(source: Path, target: Path, manifest: Manifest, name: str) -> FileEntry:
    part = (target / name).with_name(f".{uuid.uuid4().hex}.part")
    try:
        entry = copy(source / name, part)
        compare(manifest, name, entry)
        part.replace(target / name)
    finally:
        part.unlink(missing_ok=True)
    return entry


def _make_link(path: Path, target: str) -> None:
    if path.is_symlink():
        path.unlink()
    path.symlink_to(target)


def _make_directory(target: Path, name: str) -> None:
    """Refuses to pass through a symbolic link: it may lead outside `target`."""
    directory = target
    for component in filter(None, name.split("/")):
        directory = directory / component
        if directory.is_symlink():
            raise UnsafePathError("the file name", name, f"leads through {directory}, a symbolic link")
        directory.mkdir(exist_ok=True)
