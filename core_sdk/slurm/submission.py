"""Puts a trial into Slurm's queue: at first, and again when a job has ended before the training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from core_sdk.errors import SlurmError
from core_sdk.records import Settled, SlurmRecord
from core_sdk.slurm import commands
from core_sdk.slurm.script import JobRequest, batch_script
from core_sdk.tracking.attempts.starting import AttemptStart
from core_sdk.tracking.home import Home, TrialFolder


def submit_new(decide: Callable[[], AttemptStart], request: JobRequest) -> tuple[TrialFolder, int]:
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


def submit_next(folder: TrialFolder, after: int | None = None) -> int:
    """Submits the job that goes on with the trial, when job `after` has ended. Returns its id. Raises `SlurmError`."""
    options = [] if after is None else [f"--dependency=afterany:{after}"]
    job_id = commands.submit(script_path(folder), *options)
    note(folder, job_id, newest=max(folder.attempts(), default=0))
    return job_id


def script_of(request: JobRequest, home: Home, trial_id: int) -> str:
    return batch_script(
        request, trial_id=trial_id, home=home.root.absolute(), identity=home.identity(), python=sys.executable
    )


def note(folder: TrialFolder, job_id: int, *, newest: int) -> None:
    """Records that the trial, whose newest attempt is given, waits for this job."""
    folder.write_slurm_job(SlurmRecord(job_id=job_id))
    settle(folder, "PAUSED", f"waits in Slurm's queue as job {job_id}", newest=newest)


def note_end(folder: TrialFolder, job_id: int, problem: str = "") -> None:
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
