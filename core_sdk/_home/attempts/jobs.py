"""Finds the trial of a job that a scheduler starts again, after a requeue or the death of its node.

The chief notes in the home which trial the job has begun. The scheduler counts how often it has started the job, so
that a note of an earlier start can be told from a note of this start. With `CORE_SDK_JOB_ID` there is no count, and
every start goes on. Equal commands within one start cannot be told apart, nor can several trials of one process: then
the next start begins new ones.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import msgspec

from core_sdk._ground.environment import job, launch_directory, left_job, main_script, num_restarts, torchrun_launch
from core_sdk._ground.placement import Job
from core_sdk._ground.records import AttemptStarted, JobRecord
from core_sdk._home.attempts.ending import read_end
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import read_records
from core_sdk.errors import AttemptError, RecordDamagedError, TrialNotFoundError

logger = logging.getLogger("core_sdk.core")

# A file server that has lost a client keeps its locks until the client's lease ends: 90 s with NFS.
_LEASE_S = 120.0
_POLL_S = 0.1
# A process that ends well does so within seconds.
_QUIET_S = 5.0


def trial_of_job(
    home: Home, job: Job | None, script: str | None, *, has_own_files: bool = False, lease_s: float = _LEASE_S
) -> int | None:
    """Returns the trial that an earlier start of the job has begun, or None. Blocks until its last attempt has ended.

    A scheduler that counts its starts has ended the earlier one, so a lock that is held longer than `lease_s` is
    ignored. Without such a count the lock's holder may be at work: then this raises `AttemptError`. A trial
    that was begun by another `script` is ignored, unless `script` is None. A completed trial is warned of, unless the
    script goes on by files of its own.
    """
    note = None if job is None else _read(home, job.name)
    if job is None or note is None or _is_of_this_start(note, job):
        return None
    if (folder := _folder(home, note, script)) is None:
        return None
    has_ended = _has_ended(folder, lease_s)
    if (newest := _read(home, job.name)) is not None and _is_of_this_start(newest, job):
        return None  # an equal command was faster
    if not has_ended:
        attempt = max(folder.attempts())
        if job.num_restarts is None:
            raise AttemptError(
                f"the job {job.name} goes on with trial {folder.trial_id}, whose attempt {attempt} has not ended "
                f"within {lease_s:g} s. End that attempt, or give each training a CORE_SDK_JOB_ID of its own."
            )
        logger.warning(
            "attempt %d of trial %d still holds its lock after %g s. The scheduler has started the job again, so the "
            "trial goes on; what that attempt might still report is superseded",
            attempt,
            folder.trial_id,
            lease_s,
        )
    if not has_own_files and folder.attempts() and read_end(folder, None).outcome == "completed":
        logger.warning(
            "trial %d is COMPLETED, and the job %r goes on with it, from its newest checkpoint if there is one; what "
            "it has reported beyond that is superseded. Another name of the job begins a new trial",
            folder.trial_id,
            job.name.removeprefix("job/"),
        )
    return folder.trial_id


def noted_trial(home: Home, job: Job) -> TrialFolder | None:
    """Returns the trial that the job has begun, if that is known; whether it can be gone on with is not asked."""
    note = None
    with contextlib.suppress(OSError):  # `trial_of_job` warns of it
        note = _undamaged(home, job.name)
    return None if note is None or note.trial_id is None else home.folder(note.trial_id)


def note_trial_of_job(folder: TrialFolder, named: Job | None) -> None:
    """Notes for the next start of the job which trial this process executes. `named` is the script's own job id."""
    home = Home(folder.home_root)
    if (current := named or job()) is not None:
        _update(home, current.name, lambda earlier: _note(folder, current, earlier))
    elif (left := left_job()) is not None:
        # This process has begun another trial before.
        _update(home, left, lambda earlier: earlier and msgspec.structs.replace(earlier, trial_id=None))


def _note(folder: TrialFolder, job: Job, earlier: JobRecord | None) -> JobRecord:
    is_second = earlier is not None and earlier.trial_id != folder.trial_id and _is_of_this_start(earlier, job)
    return JobRecord(
        job=job.name,
        trial_id=None if is_second else folder.trial_id,
        script=main_script(),
        num_restarts=job.num_restarts,
        launch=torchrun_launch(),
    )


def _update(home: Home, name: str, note_after: Callable[[JobRecord | None], JobRecord | None]) -> None:
    """Changes the note under a lock, since equal commands may begin at the same time."""
    try:
        with home.lock_job(name):
            if (note := note_after(_undamaged(home, name))) is not None:
                home.write_job(note)
    except OSError as error:
        # What cannot be read either was reported by `trial_of_job`.
        with contextlib.suppress(OSError, RecordDamagedError):
            home.read_job(name)
            logger.warning("if the scheduler starts the job again, that begins a new trial: %s", error)


def _undamaged(home: Home, name: str) -> JobRecord | None:
    try:
        return home.read_job(name)
    except RecordDamagedError:
        return None


def _is_of_this_start(note: JobRecord, job: Job) -> bool:
    """Returns whether another training of the same start has left the note."""
    if job.num_restarts is None or note.num_restarts is None or note.num_restarts < job.num_restarts:
        return False
    return not _is_of_this_launch(note)


def _is_of_this_launch(note: JobRecord) -> bool:
    """Returns whether torchrun has started this process in place of the rank that left the note.

    Ranks of our launchers leave a note in the launch's directory, which was asked before.
    """
    launch = torchrun_launch()
    return launch_directory() is None and num_restarts() > 0 and launch != "" and note.launch == launch


def _folder(home: Home, note: JobRecord, script: str | None) -> TrialFolder | None:
    if note.trial_id is None:
        logger.warning("the job has begun several trials, and which one to go on with cannot be told: a new one begins")
        return None
    if script is not None and note.script != script:
        logger.warning("the job has begun trial %d by another script, %s: a new one begins", note.trial_id, note.script)
        return None
    try:
        return home.trial(note.trial_id)
    except TrialNotFoundError:
        logger.warning("trial %d, which the job has begun, was deleted: a new one begins", note.trial_id)
        return None


def _has_ended(folder: TrialFolder, lease_s: float) -> bool:
    """Waits for at most `lease_s`."""
    begun, is_told = time.monotonic(), False
    while (attempt := folder.running_attempt()) is not None:
        waited_s = time.monotonic() - begun
        if waited_s >= lease_s:
            return False
        logger.debug("waiting for the end of attempt %d of trial %d", attempt, folder.trial_id)
        if waited_s >= min(_QUIET_S, lease_s / 2) and not is_told:
            logger.warning(
                "waiting up to %g s for the end of attempt %d of trial %d%s", lease_s, attempt, folder.trial_id,
                _where(folder, attempt),
            )  # fmt: skip
            is_told = True
        time.sleep(_POLL_S)
    return True


def _where(folder: TrialFolder, attempt: int) -> str:
    """Says which process runs the attempt; empty if its script has not begun."""
    with contextlib.suppress(OSError):
        if isinstance(start := next(read_records(folder.journal_path(attempt)), None), AttemptStarted):
            return f", which process {start.pid} on {start.host} runs"
    return ""


def _read(home: Home, name: str) -> JobRecord | None:
    try:
        return home.read_job(name)
    except (RecordDamagedError, OSError) as error:
        logger.warning("what trial the job has begun cannot be read, and a new one begins: %s", error)
        return None
