"""Fsyncs many files at a time."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from core_sdk.files import opened

# Calls at the same time share the wait for the disk.
_NUM_THREADS = 4


class FsyncThreads:
    """Fsyncs files and directories in threads while the caller goes on."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="core-sdk-fsync")
        self._calls: list[Future[None]] = []

    def add(self, path: Path) -> None:
        self._calls.append(self._pool.submit(_fsync, path))

    def wait(self) -> None:
        """Returns when all files are on disk. Raises the first `OSError`."""
        for call in self._calls:
            call.result()

    def close(self) -> None:
        """Drops the calls that have not begun. Does nothing the second time."""
        self._pool.shutdown(cancel_futures=True)


def _fsync(path: Path) -> None:
    with opened(path, os.O_NOFOLLOW | os.O_NONBLOCK) as descriptor:
        os.fsync(descriptor)
