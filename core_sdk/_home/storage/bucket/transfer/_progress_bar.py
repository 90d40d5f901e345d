"""A progress bar on a terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

# A shorter transfer shows no bar.
_QUIET_S = 2.0


class TransferProgressBar:
    """A bar on stderr, drawn after `quiet_s` have passed, and removed at the end."""

    def __init__(self, what: str, total_bytes: int, quiet_s: float = _QUIET_S) -> None:
        self._shown_at = time.monotonic() + quiet_s
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(
            *columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False
        )
        self._task = self._progress.add_task(what, total=total_bytes)

    def add(self, num_bytes: int) -> None:
        self._progress.advance(self._task, num_bytes)
        if time.monotonic() > self._shown_at:
            self._progress.start()  # does nothing once it is shown

    def close(self) -> None:
        self._progress.stop()
