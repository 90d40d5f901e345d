"""The claim of a trial's next attempt, in a thread: a storage that does not answer holds up nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from core_sdk.agent.starting import Agent
from core_sdk.tracking.attempts.starting import Start
from core_sdk.tracking.home import TrialFolder


class Claim:
    """An attempt that is about to begin. It has its slots from construction on."""

    def __init__(
        self,
        folder: TrialFolder,
        slot_ids: tuple[int, ...],
        agent: Agent,
        make_start: Callable[[], Start],
        tell: Callable[[], None],
    ) -> None:
        """Calls `make_start` in a thread of its own, and `tell` after that."""
        self.folder = folder
        self.slot_ids = slot_ids
        self.agent = agent
        self.is_abandoned = False
        self.is_over = False
        """Until then nobody else can claim the trial."""
        self._start: Future[Start] = Future()
        threading.Thread(target=self._make, args=[make_start, tell], daemon=True).start()

    def start(self) -> Start:
        """What `make_start` has returned. Raises what it has raised."""
        return self._start.result()

    def abandon(self) -> None:
        """Takes the attempt back, at once or as soon as it is made."""
        if not self.is_abandoned:
            self.is_abandoned = True
            self.agent.close()
            self._start.add_done_callback(_withdraw)

    def _make(self, make_start: Callable[[], Start], tell: Callable[[], None]) -> None:
        try:
            self._start.set_result(make_start())
        except Exception as error:  # noqa: BLE001  (it belongs to who calls `start`)
            self.agent.close()
            self._start.set_exception(error)
        self.is_over = True
        tell()


def _withdraw(made: Future[Start]) -> None:
    if made.exception() is None:
        made.result().withdraw()
