"""Trainings, written record by record as their scripts would."""

from __future__ import annotations

from collections.abc import Callable

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import FORMAT, AttemptStarted, Ended, Outcome, Record, Report
from core_sdk._home import Home, TrialFolder
from core_sdk._home.journal import JournalWriter

START = 1_700_000_000.0


class Training:
    """An attempt of a trial that runs in this process until it ends or dies."""

    def __init__(
        self, folder: TrialFolder, attempt: int, resumed_steps: int, latest_checkpoint: str | None = None
    ) -> None:
        self.folder = folder
        self.trial_id = folder.trial_id
        self.attempt = attempt
        self._journal = JournalWriter(folder.journal_path(attempt))
        self._alive = AliveLock(folder.alive_path(attempt))
        self.append(
            AttemptStarted(
                time=START,
                format=FORMAT,
                trial_id=folder.trial_id,
                attempt=attempt,
                host="here",
                pid=1,
                sdk_version="0",
                latest_checkpoint=latest_checkpoint,
                resumed_steps=resumed_steps,
                home=Home(folder.home_root).owner(),
            )
        )

    def append(self, record: Record) -> None:
        self._journal.append(record)

    def report(self, steps: int, group: str = "training", **metrics: float | str) -> None:
        self.append(Report(START + steps, group, steps, dict(metrics)))

    def end(self, outcome: Outcome = "completed", error: str | None = None) -> None:
        self.append(Ended(time=START + 1000, outcome=outcome, error=error))
        self.die()

    def die(self) -> None:
        """Ends without a record, as after `kill -9`."""
        self._journal.close()
        self._alive.release()


Train = Callable[..., Training]
