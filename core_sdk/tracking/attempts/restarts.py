"""A launcher that starts the ranks anew, after a failure or when nodes come or go: they go on with the same trial.

So they do where a scheduler starts their job anew.

Each start is an attempt of its own. Which trial the launch has begun, its ranks say in its private directory. torchrun
has none: there only the count of its restarts tells, and the run info must say the trial.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from core_sdk.environment import job, launch_directory, main_script, num_restarts
from core_sdk.errors import NothingToResumeError
from core_sdk.files import write_atomically
from core_sdk.journal import is_alive
from core_sdk.placement import Job
from core_sdk.records import ClusterInfo, TrialInfo, from_json
from core_sdk.tracking.attempts.continuation import newest_good_checkpoint
from core_sdk.tracking.attempts.jobs import trial_of_job
from core_sdk.tracking.home import Home, TrialFolder

logger = logging.getLogger("core_sdk.tracking")

_NAME = "trial.json"


class _Begun(msgspec.Struct):
    """What this launch has begun."""

    home: str
    trial_id: int | None
    """None if its script begins several, and which of them to go on with cannot be told."""
    pid: int
    parent_pid: int
    """A rank has the same one as its successor; processes that a rank starts have another."""
    exit_path: str = ""
    """Where the launcher is to record how the attempt ended, if its script cannot; empty where the home is not seen."""


def leave_word(folder: TrialFolder, attempt: int, *, is_home_shared: bool) -> None:
    """Tells the launcher, and the ranks that it may start in place of these, which trial it is."""
    directory = launch_directory()
    if directory is None:
        return
    earlier = _read(directory)
    if earlier is not None and earlier.parent_pid != os.getppid():
        return  # we were started by a rank
    is_second = earlier is not None and earlier.pid == os.getpid()
    trial_id = None if is_second else folder.trial_id
    exit_path = str(folder.exit_path(attempt)) if is_home_shared else ""
    begun = _Begun(str(folder.home_root), trial_id, os.getpid(), os.getppid(), exit_path)
    try:
        write_atomically(directory / _NAME, msgspec.json.encode(begun))
    except OSError as error:
        logger.warning("if the launcher starts the ranks anew, they begin a new trial: %s", error)


def info_of_next_attempt(home: Home, info: ClusterInfo | None, named: Job | None) -> ClusterInfo | None:
    """`info`, unless an earlier start has begun the trial: then what its next attempt is told.

    That is an earlier start of this launch, or of the job that the script has `named`.

    Raises `NothingToResumeError` if the trial has checkpoints, and none can be read.
    """
    trial_id = _begun_trial(home, info, named)
    if trial_id is None:
        return info
    folder = home.trial(trial_id)
    continuation = newest_good_checkpoint(folder)
    for skipped in continuation.skipped:
        logger.warning("skipped checkpoint %s: %s", skipped.storage_id, skipped.reason)
    checkpoint = continuation.checkpoint
    if checkpoint is None and continuation.skipped:
        raise NothingToResumeError(trial_id, "none of its checkpoints can be read")
    record = folder.read_record()
    return msgspec.structs.replace(
        info or ClusterInfo(),
        task_type="TRIAL",
        _latest_checkpoint=checkpoint.storage_id if checkpoint else None,
        _trial_info=TrialInfo(
            trial_id=trial_id,
            experiment_id=record.experiment_id,
            trial_seed=record.seed,
            hparams=from_json(record.told_hparams),
            _config=info._trial_info._config if info and info._trial_info else {},
            _steps_completed=continuation.steps_completed,
            _trial_run_id=max(folder.attempts()) + 1,
        ),
    )


def _begun_trial(home: Home, info: ClusterInfo | None, named: Job | None) -> int | None:
    has_trial = info is not None and info.task_type == "TRIAL"
    if named is not None and not has_trial:
        return trial_of_job(home, named, script=None)
    directory = launch_directory()
    begun = _read(directory) if directory else None
    if begun is not None and begun.parent_pid == os.getppid():
        is_ours = begun.pid != os.getpid() and begun.home == str(home.root)
        return begun.trial_id if is_ours else None
    if not has_trial and (trial_id := trial_of_job(home, job(), main_script())) is not None:
        return trial_id
    if num_restarts() == 0:
        return None
    if info is None or not has_trial:
        logger.warning(
            "torchrun has started the ranks anew, and nothing tells which trial they were: a new one begins. To go on "
            "with the same one, start them with `core-sdk run -- torchrun …`, or `python -m launch.torch_distributed`"
        )
        return None
    folder = home.trial(info.trial.trial_id)
    has_begun = folder.journal_path(info.trial._trial_run_id).exists()
    return folder.trial_id if has_begun and not is_alive(folder.alive_path(max(folder.attempts()))) else None


def _read(directory: Path) -> _Begun | None:
    try:
        return msgspec.json.decode((directory / _NAME).read_bytes(), type=_Begun)
    except FileNotFoundError:
        return None
