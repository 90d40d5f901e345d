"""A scheduler that starts a job anew, after a requeue or the death of its node: it goes on with the same trial.

Which trial a job has begun, its chief says in the home. The scheduler tells how often it has started the job, so a
word of an earlier start is told from one of this start. With `CORE_SDK_JOB_ID` nobody counts: every start goes on.
Equal commands of one start cannot be told apart, nor the trials of one process: the next start begins new ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from core_sdk.environment import launch_directory, main_script, num_restarts, torchrun_launch
from core_sdk.errors import PredecessorRunningError, RecordDamagedError, TrialNotFoundError
from core_sdk.placement import Job
from core_sdk.records import JobRecord
from core_sdk.tracking.home import Home, TrialFolder

logger = logging.getLogger("core_sdk.tracking")

# A file server that has lost a client keeps its locks until its lease ends: 90 s, as NFS has it.
_LEASE_S = 120.0
_POLL_S = 0.1


def trial_of_job(home: Home, job: Job | None, script: str | None, *, lease_s: float = _LEASE_S) -> int | None:
    """The trial that an earlier start of the job has begun, once its last attempt has ended; None for a new one.

    A scheduler that counts its starts has ended the one before, so a lock that outlives it by `lease_s` does not hold
    us up. Where nobody counts, it may be a training of its own: then `PredecessorRunningError`. A trial that another
    `script` has begun does not count, unless `script` is None.
    """
    record = None if job is None else _read(home, job.name)
    if job is None or record is None or _is_of_this_start(record, job):
        return None
    if (folder := _folder(home, record, script)) is None:
        return None
    has_ended = _has_ended(folder, lease_s)
    if (newest := _read(home, job.name)) is not None and _is_of_this_start(newest, job):
        return None  # an equal command was faster
    if not has_ended:
        attempt = max(folder.attempts())
        if job.num_restarts is None:
            raise PredecessorRunningError(job.name, folder.trial_id, attempt, lease_s)
        logger.warning(
            "attempt %d of trial %d still holds its lock after %g s. The scheduler has started the job anew, so the "
            "trial goes on; what that attempt might still report is superseded",
            attempt,
            folder.trial_id,
            lease_s,
        )
    return folder.trial_id


def leave_word_of_job(folder: TrialFolder, job: Job) -> None:
    """Tells the job's next start which trial this one has begun, or goes on with."""

    def word_after(earlier: JobRecord | None) -> JobRecord:
        is_second = earlier is not None and earlier.trial_id != folder.trial_id and _is_of_this_start(earlier, job)
        return JobRecord(
            job=job.name,
            trial_id=None if is_second else folder.trial_id,
            script=main_script(),
            num_restarts=job.num_restarts,
            launch=torchrun_launch(),
        )

    _write(Home(folder.home_root), job.name, word_after)


def leave_word_of_several(home: Home, name: str) -> None:
    """Tells the job's next start that one process of this one begins several trials."""
    _write(home, name, lambda earlier: earlier and msgspec.structs.replace(earlier, trial_id=None))


def _write(home: Home, name: str, word_after: Callable[[JobRecord | None], JobRecord | None]) -> None:
    """A word that depends on the one before: equal commands may begin at the same time."""
    try:
        with home.lock_job(name):
            word = word_after(_undamaged(home, name))
            if word is not None:
                home.write_job(word)
    except OSError as error:
        if _is_readable(home, name):  # else it was said when the trial was asked for
            logger.warning("if the scheduler starts the job anew, that begins a new trial: %s", error)


def _undamaged(home: Home, name: str) -> JobRecord | None:
    try:
        return home.read_job(name)
    except RecordDamagedError:
        return None  # as was said when the trial was asked for


def _is_readable(home: Home, name: str) -> bool:
    try:
        _undamaged(home, name)
    except OSError:
        return False
    return True


def _is_of_this_start(record: JobRecord, job: Job) -> bool:
    """The word is another training's of the same start, so not for us."""
    if job.num_restarts is None or record.num_restarts is None or record.num_restarts < job.num_restarts:
        return False
    return not _is_of_this_launch(record)


def _is_of_this_launch(record: JobRecord) -> bool:
    """Whether torchrun has started us in place of the ranks that left the word.

    Our launchers' ranks leave another one in the launch's directory, which has been asked before.
    """
    launch = torchrun_launch()
    return launch_directory() is None and num_restarts() > 0 and launch != "" and record.launch == launch


def _folder(home: Home, record: JobRecord, script: str | None) -> TrialFolder | None:
    if record.trial_id is None:
        logger.warning("the job has begun several trials, and which one to go on with cannot be told: a new one begins")
        return None
    if script is not None and record.script != script:
        logger.warning(
            "the job has begun trial %d by another script, %s: a new one begins", record.trial_id, record.script
        )
        return None
    try:
        return home.trial(record.trial_id)
    except TrialNotFoundError:
        logger.warning("trial %d, which the job has begun, was deleted: a new one begins", record.trial_id)
        return None


def _has_ended(folder: TrialFolder, lease_s: float) -> bool:
    """Blocks until it has, for so long."""
    deadline = time.monotonic() + lease_s
    while (attempt := folder.running_attempt()) is not None:
        if time.monotonic() >= deadline:
            return False
        logger.debug("waiting for the end of attempt %d of trial %d", attempt, folder.trial_id)
        time.sleep(_POLL_S)
    return True


def _read(home: Home, name: str) -> JobRecord | None:
    try:
        return home.read_job(name)
    except (RecordDamagedError, OSError) as error:
        logger.warning("what trial the job has begun cannot be read, and a new one begins: %s", error)
        return None
