"""A progress bar on a terminal."""

from __future__ import annotations

import threading
import time

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress

# What is over sooner is not worth a bar.
_QUIET_S = 2.0


class ProgressBar:
    """Drawn on stderr once `quiet_s` have passed, and removed at the end."""

    def __init__(self, what: str, total_bytes: int, quiet_s: float = _QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._is_shown = False
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = RichProgress(
            *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False
        )
        self._task = self._progress.add_task(what, total=total_bytes)

    def add(self, num_bytes: int) -> None:
        self._progress.advance(self._task, num_bytes)
        if not self._is_shown and time.monotonic() - self._began > self._quiet_s:
            self._show()

    def close(self) -> None:
        with self._lock:
            self._is_shown = True
        self._progress.stop()

    def _show(self) -> None:
        with self._lock:
            if not self._is_shown:
                self._is_shown = True
                self._progress.start()
