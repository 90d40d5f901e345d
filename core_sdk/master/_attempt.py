"""An attempt that runs, as the master sees it: through its files, as an attempt that an earlier master has started."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core_sdk.agent.starting import Agent
from core_sdk.errors import CoreSDKError
from core_sdk.tracking.attempts.running import kill
from core_sdk.tracking.attempts.starting import Start
from core_sdk.tracking.home import TrialFolder
from core_sdk.tracking.rows import StreamPosition


@dataclass
class RunningAttempt:
    """Watched by polling; what its agent says only makes the master look sooner."""

    folder: TrialFolder
    number: int
    position: StreamPosition
    """How far what the searcher must know was read; a launcher that starts its ranks anew begins further attempts."""
    agent: Agent | None = None
    """None for an attempt that an earlier master has started."""
    problem: str = ""
    """Why its command could not be started."""
    is_starting: bool = False

    def start(self, start: Start, agent: Agent, tell: Callable[[], None]) -> None:
        """Starts the command in a thread of its own, which calls `tell` at its end."""
        self.agent, self.is_starting = agent, True
        threading.Thread(target=self._run, args=[start, agent, tell], daemon=True).start()

    @property
    def is_over(self) -> bool:
        return not self.is_starting and self.folder.running_attempt() is None

    @property
    def has_begun(self) -> bool:
        """Whether its script has called `init()`."""
        return self.folder.journal_path(self.number).exists()

    def ask_to_stop(self, reason: str) -> None:
        """Through `should_preempt()`; a script that has not called `init()` gets SIGTERM."""
        self.folder.request_stop(max(self.folder.attempts()), reason)
        if not self.has_begun and self.agent is not None:
            self.agent.signal(signal.SIGTERM)

    def kill(self) -> None:
        """With all that it has started. Does not wait for the end."""
        if self.agent is not None:
            self.agent.signal(signal.SIGKILL)
        else:
            threading.Thread(target=kill, args=[self.folder, self.number], daemon=True).start()

    def _run(self, start: Start, agent: Agent, tell: Callable[[], None]) -> None:
        try:
            with Path(os.devnull).open("rb") as nothing:
                agent.start(start, stdin=nothing.fileno())
        except CoreSDKError as error:
            self.problem = str(error)
            start.lock.release()
        self.is_starting = False
        if not self.problem:
            agent.wait()
        agent.close()
        tell()
