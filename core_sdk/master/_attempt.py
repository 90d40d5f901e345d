"""An attempt that runs, as the master sees it: through its files, as an attempt that an earlier master has started."""

from __future__ import annotations

import signal
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

    @property
    def has_begun(self) -> bool:
        """Whether its script has called `init()`."""
        return self.folder.journal_path(self.number).exists()

    def ask_to_stop(self, reason: str) -> None:
        """Through `should_preempt()`; a script that has not called `init()` gets SIGTERM."""
        self.folder.request_stop(max(self.folder.attempts()), reason)
        if not self.has_begun:
            self.execution.signal(signal.SIGTERM)
