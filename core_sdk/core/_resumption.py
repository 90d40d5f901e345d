"""Notices an attempt that does not load the checkpoint from which it goes on, or that counts its steps again."""

from __future__ import annotations

import logging
import time

from core_sdk._ground.records import Alert, AttemptStarted
from core_sdk._home.journal import Journal

logger = logging.getLogger("core_sdk.train")


class Resumption:
    """The checkpoint from which the attempt goes on, if any, and what the chief has done with it.

    Each attempt is warned once, in its output and by an alert of the trial.
    """

    def __init__(self, start: AttemptStarted, journal: Journal) -> None:
        self._start = start
        self._journal = journal
        self._is_read = start.latest_checkpoint is None
        self.is_settled = start.latest_checkpoint is None
        """Whether there is nothing more to notice."""

    def note_read(self) -> None:
        """Notes that the script reads a checkpoint, be it this one or another one that it prefers."""
        self._is_read = True

    def heed_report(self, group: str, steps_completed: int) -> None:
        """Warns if the report cannot be of a training that goes on from the checkpoint."""
        resumed = self._start.resumed_steps
        if self.is_settled or steps_completed == 0:
            return  # step 0 may be reported before anything is restored
        # A validation of the checkpoint itself may come after the resume.
        if not self._is_read:
            self._warn(
                "the checkpoint was not read",
                f"this attempt was to go on from checkpoint {self._start.latest_checkpoint} of step {resumed}, and "
                f"reports step {steps_completed} without having read it: restore it before the training, by "
                "loop.State.restore() or checkpoint.restore_path(), or begin a new trial. A script that only evaluates "
                "may ignore this",
            )
        elif steps_completed < resumed:  # a script may save a step before it trains and reports it
            self._warn(
                "the steps have gone back",
                f"this attempt went on from the checkpoint of step {resumed}, and reports step {steps_completed} of "
                f"{group!r} again, which replaces what was reported there. After a resume, enumerate() counts the rest "
                "of an epoch from 0: count by `loader.batches` of loop.resumable(), or keep the counter in the "
                "checkpoint",
            )
        self.is_settled = self.is_settled or group == "training"

    def _warn(self, title: str, description: str) -> None:
        self.is_settled = True
        logger.warning("%s: %s", title, description)
        self._journal.append(Alert(time=time.time(), title=title, description=description, level="warn"))
