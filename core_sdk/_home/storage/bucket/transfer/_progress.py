"""The progress of a long transfer: a bar on a terminal, elsewhere a line in the log now and then."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Protocol

logger = logging.getLogger("core_sdk.storage")

_LOG_INTERVAL_S = 10.0
_MB = 1e6


class TransferProgress(Protocol):
    """Shows how far a transfer is. Safe in threads."""

    def add(self, num_bytes: int) -> None:
        """Adds bytes that have been transferred. A negative number takes back bytes that must be transferred again."""

    def close(self) -> None:
        """Ends the display, when the transfer has succeeded or failed."""


@contextlib.contextmanager
def progress_of(what: str, total_bytes: int) -> Iterator[TransferProgress]:
    """Shows a bar if stderr is a terminal and this is the main thread; otherwise logs.

    In another thread a bar would be drawn into the script's own output.
    """
    is_watched = sys.stderr.isatty() and threading.current_thread() is threading.main_thread()
    progress: TransferProgress = LoggedProgress(what, total_bytes)
    if is_watched:
        from core_sdk._home.storage.bucket.transfer._progress_bar import (
            TransferProgressBar,  # imports rich, which takes a while
        )

        progress = TransferProgressBar(what, total_bytes)
    try:
        yield progress
    finally:
        progress.close()


class LoggedProgress:
    """Logs a line every `interval_s`, as long as bytes arrive."""

    def __init__(self, what: str, total_bytes: int, interval_s: float = _LOG_INTERVAL_S) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._num_bytes = 0
        self._began = self._logged = time.monotonic()

    def add(self, num_bytes: int) -> None:
        with self._lock:
            self._num_bytes += num_bytes
            now = time.monotonic()
            if now - self._logged < self._interval_s:
                return
            self._logged = now
            self._log(now - self._began)

    def close(self) -> None:
        pass

    def _log(self, elapsed_s: float) -> None:
        done_mb, total_mb = self._num_bytes / _MB, self._total_bytes / _MB
        percent = 100.0 * done_mb / total_mb if total_mb else 100.0
        speed = done_mb / elapsed_s
        logger.info("%s: %.0f of %.0f MB (%.0f %%), %.1f MB/s", self._what, done_mb, total_mb, percent, speed)
