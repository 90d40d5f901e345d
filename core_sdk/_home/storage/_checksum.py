"""Sizes and checksums of files, each read once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import google_crc32c

from core_sdk._ground.files import opened_regular
from core_sdk._ground.records import FileEntry

# Fits the second-level cache, so that the checksum reads what the copy out of the page cache has just put there.
_CHUNK_BYTES = 512 << 10
# Enough to keep a disk's queue filled. Checksum and I/O run outside the interpreter's lock.
_NUM_THREADS = 4

_A = TypeVar("_A")
_T = TypeVar("_T")


def checksum(path: Path) -> FileEntry:
    """Reads a regular file and returns its size and checksum. Never follows a link."""
    with opened_regular(path) as descriptor:
        return _entry(_chunks(descriptor))


def copy(source: Path, target: Path) -> FileEntry:
    """Copies a file to the new file `target`, and returns the entry of what was read. Never follows a link."""
    with opened_regular(source) as descriptor, target.open("xb") as file:
        return _entry(_written(_chunks(descriptor), file.write))


@contextlib.contextmanager
def in_threads(work: Callable[[_A], _T], items: Sequence[_A]) -> Iterator[Iterator[_T]]:
    """Calls `work` for all items in threads, and yields the results in order.

    The calls begin at once. The end of the block drops those that have not begun.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="core-sdk-files")
    try:
        yield pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _entry(chunks: Iterator[bytes]) -> FileEntry:
    crc32c = 0
    size_bytes = 0
    for chunk in chunks:
        crc32c = google_crc32c.extend(crc32c, chunk)
        size_bytes += len(chunk)
    return FileEntry(size_bytes=size_bytes, crc32c=f"{crc32c:08x}")


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        yield chunk


def _written(chunks: Iterator[bytes], write: Callable[[bytes], int]) -> Iterator[bytes]:
    for chunk in chunks:
        write(chunk)
        yield chunk
