"""Lets ranks go on with their trial, in a new attempt, when a launcher, torchrun or a scheduler starts them again.

Ranks of our launchers note in the launch's private directory which trial they have begun. torchrun has no such
directory: it only tells how often it has restarted the ranks, and the run info must name the trial. The trial of a
scheduler's job is noted in the home (`jobs`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from pathlib import Path

import msgspec

from core_sdk._ground.alive import is_alive
from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.environment import job, launch_directory, main_script, num_restarts
from core_sdk._ground.files import write_atomically
from core_sdk._ground.placement import Job
from core_sdk._ground.records import AttemptStarted, ClusterInfo
from core_sdk._home.attempts.continuation import Continuation, newest_good_checkpoint
from core_sdk._home.attempts.jobs import trial_of_job
from core_sdk._home.attempts.run_info import names_trial, with_trial
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import read_records
from core_sdk.errors import HomeNotWritableError, NothingToResumeError

logger = logging.getLogger("core_sdk.core")

_NAME = "trial.json"


class _Note(msgspec.Struct):
    """The trial that the ranks of a launch have begun."""

    home: str
    trial_id: int | None
    """The trial; None if the script begins several, of which the next start cannot tell which one to go on with."""
    pid: int
    parent_pid: int
    """A rank has the same parent as its successor; processes that a rank starts have another."""
    exit_path: str = ""
    """The file in which the launcher records the attempt's end, if the script cannot; empty without a shared home."""


def note_trial_of_launch(folder: TrialFolder, attempt: int, *, is_home_shared: bool) -> None:
    """Notes which trial this is, for the launcher and for the ranks that it may start in place of these."""
    directory = launch_directory()
    if directory is None:
        return
    earlier = _read(directory)
    if earlier is not None and earlier.parent_pid != os.getppid():
        return  # a rank has started this process
    is_second_trial = earlier is not None and earlier.pid == os.getpid()
    note = _Note(
        home=str(folder.home_root),
        trial_id=None if is_second_trial else folder.trial_id,
        pid=os.getpid(),
        parent_pid=os.getppid(),
        exit_path=str(folder.exit_path(attempt)) if is_home_shared else "",
    )
    try:
        write_atomically(directory / _NAME, msgspec.json.encode(note))
    except OSError as error:
        logger.warning("if the launcher starts the ranks again, they begin a new trial: %s", error)


def check_home(root: Path, info: ClusterInfo | None) -> None:
    """Raises `HomeNotWritableError` if the home in which the training has begun is gone, so that none is made there."""
    directory = launch_directory()
    note = _read(directory) if directory else None
    has_begun = names_trial(info) or (note is not None and note.home == str(root))
    if has_begun and not root.exists():
        raise HomeNotWritableError(root, "the training has begun in it, and it was moved or removed since")


def info_of_next_attempt(
    home: Home, info: ClusterInfo | None, named: Job | None, steps_completed: int | None = None
) -> ClusterInfo | None:
    """Returns the run info of the next attempt of the trial that an earlier start has begun; `info` if there is none.

    An earlier start is one of the same launch, or of the same job: the one that the script has `named`, if any. The
    attempt goes on from the newest good checkpoint, or by files of the script's own after `steps_completed`.

    Raises `NothingToResumeError` if the trial has checkpoints and none can be read.
    """
    trial_id = _begun_trial(home, info, named, has_own_files=steps_completed is not None)
    return info if trial_id is None else next_info(home.trial(trial_id), info, steps_completed)


def next_info(folder: TrialFolder, info: ClusterInfo | None, steps_completed: int | None = None) -> ClusterInfo:
    """Returns the run info of the trial's next attempt, at the place in `info`, from its newest good checkpoint.

    With `steps_completed` it goes on after this step, and from no checkpoint.

    The caller already holds the trial. Raises `NothingToResumeError` if the trial has checkpoints and none can be
    read.
    """
    if steps_completed is None:
        continuation = newest_good_checkpoint(folder)
    else:
        continuation = Continuation(None, steps_completed, ())
    for skipped in continuation.skipped:
        logger.warning("skipped checkpoint %s: %s", skipped.storage_id, skipped.reason)
    if continuation.checkpoint is None and continuation.skipped:
        raise NothingToResumeError(folder.trial_id, "none of its checkpoints can be read")
    attempt = max(folder.attempts()) + 1
    where = info or ClusterInfo()
    steps = continuation.steps_completed
    told = with_trial(where, folder.read_record(), attempt, continuation.storage_id, steps)
    told.trial.setback = continuation.setback
    return told


def begin_next(folder: TrialFolder) -> Path:
    """Begins the trial's next attempt at the place of the newest one, and returns the path of its run info.

    The caller already holds the trial. Raises `NothingToResumeError` or `OSError`.
    """
    info = next_info(folder, folder.read_run_info(max(folder.attempts())))
    folder.write_run_info(info.trial.attempt, info, overwrite=False)
    return folder.run_info_path(info.trial.attempt)


def has_begun(home: Home, info: ClusterInfo) -> bool:
    """Returns whether a script has begun the attempt that `info` names."""
    return home.folder(info.trial.trial_id).journal_path(info.trial.attempt).exists()


def _begun_trial(home: Home, info: ClusterInfo | None, named: Job | None, *, has_own_files: bool) -> int | None:
    if names_trial(info) and not has_begun(home, info):
        return None  # the starter of these ranks has made this attempt for them
    if named is not None and not names_trial(info):
        return trial_of_job(home, named, script=None, has_own_files=has_own_files)
    directory = launch_directory()
    note = _read(directory) if directory else None
    if note is not None and note.parent_pid == os.getppid():
        is_predecessor = note.pid != os.getpid() and note.home == str(home.root)
        return note.trial_id if is_predecessor else None
    if names_trial(info):
        return _trial_of_torchrun(home, info) if num_restarts() else None
    if (trial_id := trial_of_job(home, job(), main_script())) is None and num_restarts():
        logger.warning(
            "torchrun has started the ranks again, and nothing tells which trial they were: a new one begins. To go on "
            "with the same one, start them with `core-sdk run -- torchrun …`, or `python -m launch.torch_distributed`"
        )
    return trial_id


def _trial_of_torchrun(home: Home, info: ClusterInfo) -> int | None:
    """Returns the trial of `info`, if ranks that have died since had begun the attempt that it names."""
    folder = home.trial(info.trial.trial_id)
    newest = max(folder.attempts())
    is_over = not is_alive(folder.alive_path(newest)) and not is_begun_here(folder, newest)
    return folder.trial_id if is_over else None


def is_begun_here(folder: TrialFolder, attempt: int) -> bool:
    """Returns whether this process has begun the attempt."""
    with contextlib.suppress(OSError):
        start = next(read_records(folder.journal_path(attempt)), None)
        return isinstance(start, AttemptStarted) and (start.host, start.pid) == (socket.gethostname(), os.getpid())
    return False


def _read(directory: Path) -> _Note | None:
    try:
        return json_decoder(_Note)((directory / _NAME).read_bytes())
    except FileNotFoundError:
        return None
