"""Puts a trial into Slurm's queue: at first, and again when a job has ended before the training."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.script import JobPlace, JobRequest, trial_script
from core_sdk._ground.records import Settled, SlurmRecord
from core_sdk._home.attempts.command import command_here
from core_sdk._home.attempts.ending import read_end
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.states import WAITS_IN_SLURM
from core_sdk.errors import AttemptError, SlurmError, TrialCompletedError


def submit_new(decide: Callable[[], AttemptStart], request: JobRequest) -> tuple[TrialFolder, str]:
    """Submits the first job of the trial that `decide` begins. Returns the trial's folder and the job's id.

    Raises `SlurmError`, or what `decide` raises, and leaves no trial then.
    """
    start = decide()
    folder = start.folder
    try:
        script_path(folder).write_text(script_of(request, Home(folder.home_root), folder.trial_id))
        job_id = commands.submit(script_path(folder))
    except (SlurmError, OSError):
        start.withdraw()
        raise
    # The job waits for the lock, which it gets when all is written.
    note(folder, job_id, newest=start.number - 1)
    start.postpone()
    return folder, job_id


def submit_again(folder: TrialFolder, argv: Sequence[str], *, is_again: bool) -> str:
    """Submits the next job of a trial that has stopped, and returns its id. `argv` replaces the trial's command.

    Raises `SlurmError`, `AttemptError` if a job of it waits or runs, or `TrialCompletedError` without `is_again`.
    """
    job, trial_id = folder.read_slurm_job(), folder.trial_id
    if job is not None and not job.is_over:
        state = commands.states([job.job_id]).get(job.job_id)
        if (state is not None and not state.is_over) or folder.running_attempt() is not None:
            raise AttemptError.in_slurm(trial_id, "resume", job.job_id, f"`scancel {job.job_id}` ends it")
    if folder.attempts() and not is_again and read_end(folder, None).outcome == "completed":
        raise TrialCompletedError(trial_id, 0)
    if argv:
        folder.write_command(command_here(argv))
    return submit_next(folder)


def submit_next(folder: TrialFolder, after: str | None = None) -> str:
    """Submits the job that goes on with the trial, when job `after` has ended. Returns its id. Raises `SlurmError`."""
    options = [] if after is None else [f"--dependency=afterany:{after}"]
    job_id = commands.submit(script_path(folder), *options)
    note(folder, job_id, newest=max(folder.attempts(), default=0))
    return job_id


def on_gpus(request: JobRequest) -> JobRequest:
    """Returns the request with GPUs as slots if the nodes of its partition have any. Raises `SlurmError`."""
    return replace(request, has_gpus=bool(request.num_slots) and commands.has_gpus(request.partition))


def script_of(request: JobRequest, home: Home, trial_id: int) -> str:
    return trial_script(request, trial_id, place_of(home))


def place_of(home: Home) -> JobPlace:
    """Returns what nodes have to have in common with this machine."""
    return JobPlace(home.root.absolute(), home.identity(), versions())


def versions() -> str:
    """Returns the versions of Python and torch here, such as `3.11/2.6.0`."""
    torch, (major, minor) = importlib.metadata.version("torch").partition("+")[0], sys.version_info[:2]
    return f"{major}.{minor}/{torch}"


def note(folder: TrialFolder, job_id: str, *, newest: int) -> None:
    """Records that the trial, whose newest attempt is given, waits for this job."""
    folder.write_slurm_job(SlurmRecord(job_id=job_id))
    settle(folder, "PAUSED", f"{WAITS_IN_SLURM} as job {job_id}", newest=newest)


def note_end(folder: TrialFolder, job_id: str, problem: str = "") -> None:
    """Records that the job has ended, and no other follows it."""
    folder.write_slurm_job(SlurmRecord(job_id=job_id, is_over=True, problem=problem))


def settle(
    folder: TrialFolder, state: Literal["CANCELED", "PAUSED"], reason: str, *, newest: int | None = None
) -> None:
    """Records the state of a trial that does not run. Without `newest`, its newest attempt is looked for."""
    newest = max(folder.attempts(), default=0) if newest is None else newest
    folder.append_change(Settled(time=time.time(), state=state, reason=reason, attempt=newest))


def script_path(folder: TrialFolder) -> Path:
    return folder.path / "slurm.sh"
