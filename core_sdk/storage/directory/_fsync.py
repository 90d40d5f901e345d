"""Making files survive a power cut, many at a time."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

# One after the other, each would wait for a turn of the disk; together they share it.
_NUM_THREADS = 4


class FsyncThreads:
    """Fsyncs files and directories in threads while the caller goes on.

    All are safe when the block is left; it raises the `OSError` of the first that is not.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="core-sdk-fsync")
        self._flushes: list[Future[None]] = []

    def add(self, path: Path) -> None:
        self._flushes.append(self._pool.submit(_fsync, path))

    def __enter__(self) -> FsyncThreads:
        return self

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        with self._pool:
            for flush in self._flushes:
                if exc_type is None:
                    flush.result()
                else:
                    flush.cancel()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
