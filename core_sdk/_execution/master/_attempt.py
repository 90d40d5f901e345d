"""A running attempt as the master sees it, through its files, since an earlier master may have started it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from core_sdk._execution.master.pools import Execution
from core_sdk._home.folders import TrialFolder
from core_sdk._home.rows import StreamPosition


@dataclass
class RunningAttempt:
    folder: TrialFolder
    number: int
    position: StreamPosition
    """The position up to which the reports were read. A launcher that restarts its ranks begins further attempts."""
    execution: Execution
    _patience_ends: float | None = None
    """The time at which to kill it, by the monotonic clock, since another clock may jump."""

    @property
    def is_late(self) -> bool:
        """Whether it was asked to stop, and has not stopped in time."""
        return self._patience_ends is not None and time.monotonic() >= self._patience_ends

    @property
    def has_begun(self) -> bool:
        """Whether its script has called `init()`."""
        return self.folder.journal_path(self.number).exists()

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed its files, so that nothing will ever tell how it ends."""
        return is_gone(self.folder, self.number)

    def ask_to_stop(self, reason: str, timeout_s: float) -> None:
        """Asks it to stop, through `should_preempt()`, or by SIGTERM if its script has not called `init()`.

        The timeout begins with the first call in this process, also if an earlier master has asked before.
        """
        if self._patience_ends is None:
            self._patience_ends = time.monotonic() + timeout_s
        self.folder.request_stop(max(self.folder.attempts()), reason)
        if not self.has_begun:
            self.execution.signal(signal.SIGTERM)


def is_gone(folder: TrialFolder, attempt: int) -> bool:
    """Returns whether somebody has removed the files of the trial, or of this attempt, which has begun."""
    try:
        return not folder.exists() or attempt not in folder.attempts()
    except FileNotFoundError:
        return True
