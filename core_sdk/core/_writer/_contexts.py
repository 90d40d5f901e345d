"""The claim of a writer, its reports, and the checkpoints that it reads.

It makes no attempt. What it reports belongs to the attempt of whose steps it tells, and is superseded with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from core_sdk._distributed import DistributedContext
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import AttemptStarted, ClusterInfo, TrialRecord
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.attempts.claiming import Attempt, start_record
from core_sdk._home.attempts.run_info import as_told, with_trial
from core_sdk._home.history import read_history
from core_sdk._home.journal import WritersJournal, read_records
from core_sdk.core._checkpoint import CheckpointContext
from core_sdk.core._ledger import Ledger
from core_sdk.core._train import TrainContext
from core_sdk.errors import CheckpointNotFoundError, WriterRefusedError

logger = logging.getLogger("core_sdk.train")


def claim_writer(
    home: Home, trial: int | str, name: str, distributed: DistributedContext
) -> tuple[Attempt, WritersJournal]:
    """Claims the name of a writer of a trial on the chief. Returns what each rank holds of the trial. Collective.

    The attempt is the newest that has begun. Raises `TrialNotFoundError`, `AmbiguousNameError` or `WriterRefusedError`.
    """
    locks: list[AliveLock] = []

    def claim() -> tuple[AttemptStarted, TrialRecord, str | None, int]:
        folder = home.trial(trial if isinstance(trial, int) else _id_of(home, trial))
        if (attempt := folder.newest_begun()) == 0:
            raise WriterRefusedError(folder.trial_id, name, "the trial's script has not begun: there are no steps yet")
        locks.append(_lock(folder, name))
        latest = next((one for one in reversed(read_history(folder).checkpoints) if not one.is_superseded), None)
        storage_id, steps = (None, 0) if latest is None else (latest.record.storage_id, latest.record.steps_completed)
        return start_record(folder, attempt, home.owner()), folder.read_record(), storage_id, steps

    try:
        begin, record, storage_id, steps = distributed.channel.broadcast_outcome(claim)
    except BaseException:
        for lock in locks:
            lock.release()
        raise
    folder = home.folder(begin.trial_id)

    def start(attempt: int) -> AttemptStarted:
        return msgspec.structs.replace(begin, time=time.time(), attempt=attempt, writer=name)

    alive = next(iter(locks), None)
    journal = WritersJournal(name, alive, lambda attempt: folder.journal_path(attempt, name), start, begin.attempt)
    info = as_told(with_trial(ClusterInfo(), record, begin.attempt, storage_id, steps))
    return Attempt(folder, begin.attempt, info, record, begin, journal, None, writer=name), journal


class WritersTrainContext(TrainContext):
    """Reports what a writer finds out about a trial."""

    def __init__(self, journal: WritersJournal, folder: TrialFolder, **parts: Any) -> None:
        super().__init__(journal=journal, folder=folder, **parts)
        self._of_writer = journal
        self._checkpoints: dict[str, tuple[int, int]] = {}
        """The attempt and the step of each checkpoint that was named."""

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
        checkpoint: str | None = None,
        replace: bool = False,
    ) -> None:
        self._journal.check_open()
        if checkpoint is None:
            attempt = self._folder.newest_begun() or self._of_writer.attempt  # the folder may be gone
        else:
            attempt, steps = self._checkpoints.get(checkpoint) or self._look_up(checkpoint)
            if steps != steps_completed:
                raise ValueError(
                    f"steps_completed is {steps_completed}, and checkpoint {checkpoint} is one of step {steps}"
                )
        with self._journal.lock:
            self._of_writer.attempt = attempt
            self._ledger = Ledger()  # what is evaluated again replaces what was reported before
            super()._report(group, steps_completed, metrics, batch_metrics)

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
        where = f"the records of trial {self._trial_id}"
        with open_view(self._home) as view:
            row = next((one for one in view.checkpoints(trial_id=self._trial_id) if one.storage_id == storage_id), None)
        if row is None:
            raise CheckpointNotFoundError(storage_id, where)
        return row.attempt, row.steps_completed


class WritersCheckpointContext(CheckpointContext):
    """Reads the checkpoints of a trial. A writer stores and deletes none: these calls raise `RuntimeError`."""

    def delete(self, storage_id: str, globs: object = None) -> None:
        raise RuntimeError(_is_not_its_own("delete()"))

    def release(self, storage_id: str) -> bool:
        raise RuntimeError(_is_not_its_own("release()"))

    def _check_rank(self, call: str, shard: bool) -> None:
        raise RuntimeError(_is_not_its_own(f"{call}()"))


def _is_not_its_own(call: str) -> str:
    return f"{call} was called by a writer, which only reads the checkpoints of the trial's own program"


def _id_of(home: Home, name: str) -> int:
    with open_view(home) as view:
        return view.trial(name).trial_id


def _lock(folder: TrialFolder, name: str) -> AliveLock:
    try:
        return AliveLock(folder.writer_path(name))
    except BlockingIOError as error:
        raise WriterRefusedError(folder.trial_id, name, f"{_holder(folder, name)} writes under this name") from error


def _holder(folder: TrialFolder, name: str) -> str:
    journals = [folder.journal_path(attempt, source) for attempt, source in folder.other_journals() if source == name]
    starts = [one for path in journals for one in read_records(path) if isinstance(one, AttemptStarted)]
    newest = max(starts, key=lambda one: one.time, default=None)
    return "another process" if newest is None else f"process {newest.pid} on {newest.host}"
