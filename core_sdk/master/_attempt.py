"""An attempt that runs, as the master sees it: through its files, as an attempt that an earlier master has started."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass

from core_sdk.master.pools import Execution
from core_sdk.tracking.home import TrialFolder
from core_sdk.tracking.rows import StreamPosition


@dataclass
class RunningAttempt:
    folder: TrialFolder
    number: int
    position: StreamPosition
    """How far what the searcher must know was read; a launcher that starts its ranks anew begins further attempts."""
    execution: Execution
    _patience_ends: float | None = None
    """When to kill it, by the monotonic clock: another clock may jump."""

    @property
    def is_late(self) -> bool:
        """Whether it was asked to stop, and has not done so in time."""
        return self._patience_ends is not None and time.monotonic() >= self._patience_ends

    @property
    def has_begun(self) -> bool:
        """Whether its script has called `init()`."""
        return self.folder.journal_path(self.number).exists()

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed its files: nothing will ever tell how it ends."""
        return is_gone(self.folder, self.number)

    def ask_to_stop(self, reason: str, timeout_s: float) -> None:
        """Through `should_preempt()`; a script that has not called `init()` gets SIGTERM.

        Its time begins with the first call, also for a master that takes up what an earlier one has asked.
        """
        if self._patience_ends is None:
            self._patience_ends = time.monotonic() + timeout_s
        self.folder.request_stop(max(self.folder.attempts()), reason)
        if not self.has_begun:
            self.execution.signal(signal.SIGTERM)


def is_gone(folder: TrialFolder, attempt: int) -> bool:
    """Whether somebody has removed the files of the trial, or of this attempt of it, which has begun."""
    try:
        return not folder.exists() or attempt not in folder.attempts()
    except FileNotFoundError:
        return True
