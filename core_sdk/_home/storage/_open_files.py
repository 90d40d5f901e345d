"""Files that this process still has open for writing, or mapped into its memory, when they are to be stored."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from core_sdk._home.storage._tree import Tree
from core_sdk.errors import CheckpointNotStoredError

logger = logging.getLogger("core_sdk.checkpoint")

_DESCRIPTORS = "/dev/fd"
_MAPS = Path("/proc/self/maps")


def flush_open_files(tree: Tree, storage_id: str, where: str) -> None:
    """Flushes Python's file objects that write to files of the tree. Files that are mapped for writing need no flush.

    Raises `CheckpointNotStoredError` for a file that stays empty: what its library will write when it is closed is
    missing. Of other files that are still open a warning says so.
    """
    names = {(status.st_dev, status.st_ino): name for name, status in _statuses(tree)}
    mapped = writable_mappings()
    descriptors = {number: name for number, (key, name) in _written(names).items() if key[1] not in mapped}
    if descriptors:
        _flush(descriptors.keys())
    for name in sorted(set(descriptors.values())):
        if tree.files[name].path.stat().st_size == 0:
            problem = "is empty, and still open for writing in this process. Close it before the block ends"
            raise CheckpointNotStoredError(storage_id, where, f"{name!r} {problem}")
        logger.warning(
            "%r of the checkpoint is still open for writing: what is written to it from now on is missing there, or "
            "damages it. Close it before the block ends",
            name,
        )


def writable_mappings() -> set[int]:
    """Returns the inodes of files that this process can change through mapped memory (`mmap`, `numpy.memmap`).

    Returns none on systems other than Linux, which do not list them.
    """
    try:
        lines = _MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    # The fields are address, rights, offset, device, inode and path.
    return {int(inode) for _, rights, _, _, inode, *_ in fields if rights[1] == "w" and rights[3] == "s"}


def _statuses(tree: Tree) -> Iterable[tuple[str, os.stat_result]]:
    return ((name, file.path.stat()) for name, file in tree.files.items())


def _written(names: dict[tuple[int, int], str]) -> dict[int, tuple[tuple[int, int], str]]:
    """Returns the descriptors of this process that write to one of the files, with the file's key and name."""
    found = {}
    for number in map(int, os.listdir(_DESCRIPTORS) if os.path.isdir(_DESCRIPTORS) else ()):  # noqa: PTH112, PTH208
        with contextlib.suppress(OSError):  # closed meanwhile
            status = os.fstat(number)
            is_written = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            key = status.st_dev, status.st_ino
            if stat.S_ISREG(status.st_mode) and is_written and key in names:
                found[number] = key, names[key]
    return found


def _flush(descriptors: Iterable[int]) -> None:
    numbers = set(descriptors)
    for each in gc.get_objects():
        if issubclass(type(each), io.IOBase) and _descriptor_of(each) in numbers:
            each.flush()


def _descriptor_of(file: io.IOBase) -> int | None:
    """Returns None for one that is closed or has none, which classes of others say with errors of their own."""
    try:
        return file.fileno()
    except Exception:  # noqa: BLE001 (any class may be derived from `IOBase`)
        return None
