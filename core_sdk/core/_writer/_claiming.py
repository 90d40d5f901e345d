"""The claim of a writer: one process writes to a trial under a name. It makes no attempt."""

from __future__ import annotations

import time

import msgspec

from core_sdk._distributed import DistributedContext
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import AttemptStarted, ClusterInfo, TrialRecord
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.attempts.claiming import Attempt, start_record
from core_sdk._home.attempts.run_info import as_told, with_trial
from core_sdk._home.history import read_history
from core_sdk._home.journal import WritersJournal, read_records
from core_sdk.errors import WriterRefusedError


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
