"""The reports of a writer: each tells of a checkpoint, or of a step of the newest attempt.

A report belongs to the attempt of which it tells, and is superseded with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from core_sdk._ground.records import check_name
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.history import read_history
from core_sdk._home.journal import WritersJournal
from core_sdk.core._train import Ledger
from core_sdk.errors import CheckpointNotFoundError

logger = logging.getLogger("core_sdk.train")


class WriterLedger(Ledger):
    """Has each report recorded for the attempt of which it tells. What is evaluated again replaces what was reported.

    Refuses a report about a checkpoint that the trial does not have, or not at this step.
    """

    def __init__(self, journal: WritersJournal, folder: TrialFolder) -> None:
        self._journal = journal
        self._folder = folder
        self._checkpoints: dict[str, tuple[int, int]] = {}
        """The attempt and the step of each checkpoint that was named."""

    def enter(
        self,
        group_name: str,
        steps_completed: int,
        names: Iterable[str],
        checkpoint: str | None = None,
        *,
        may_repeat: bool = False,
    ) -> None:
        """Enters a report. Raises `InvalidNameError`, `TypeError`, `CheckpointNotFoundError` or `ValueError`."""
        self._journal.check_open()
        if checkpoint is None:
            attempt = self._folder.newest_begun() or self._journal.attempt  # the folder may be gone
        else:
            attempt, steps = self._checkpoints.get(checkpoint) or self._look_up(checkpoint)
            if steps != steps_completed:
                raise ValueError(
                    f"steps_completed is {steps_completed}, and checkpoint {checkpoint} is one of step {steps}"
                )
        check_name("the metric group", group_name)
        for name in names:
            check_name(f"the metric name in group {group_name!r}", name)
        self._journal.attempt = attempt

    def _look_up(self, storage_id: str) -> tuple[int, int]:
        history = read_history(self._folder)
        found = next((one for one in history.checkpoints if one.record.storage_id == storage_id), None)
        if found is not None:
            attempt, steps = found.attempt, found.record.steps_completed
            if found.is_superseded:
                logger.warning(
                    "checkpoint %s of step %d is superseded: a later attempt has gone on from an earlier step. What is "
                    "reported about it is kept, and hidden",
                    storage_id,
                    steps,
                )
        else:
            attempt, steps = self._look_up_deleted(storage_id)
        self._checkpoints[storage_id] = attempt, steps
        return attempt, steps

    def _look_up_deleted(self, storage_id: str) -> tuple[int, int]:
        """Returns the attempt and the step of a checkpoint that was deleted since it was read."""
        where = f"the records of trial {self._folder.trial_id}"
        with open_view(Home(self._folder.home_root)) as view:
            row = next(
                (one for one in view.checkpoints(trial_id=self._folder.trial_id) if one.storage_id == storage_id), None
            )
        if row is None:
            raise CheckpointNotFoundError(storage_id, where)
        return row.attempt, row.steps_completed
