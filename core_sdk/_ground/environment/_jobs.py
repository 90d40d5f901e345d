"""The scheduler's job to which the training of this process belongs."""

from __future__ import annotations

import os
from collections.abc import Mapping

from core_sdk._ground.environment._command import script_and_arguments
from core_sdk._ground.environment.names import LEFT_JOB_VARIABLE
from core_sdk._ground.placement import JOB_ID_VARIABLE, Job, scheduled_job, slurm_job_name


def job() -> Job | None:
    """Returns the scheduler's job to which the training of this process belongs; None if there is none."""
    variables = dict(os.environ)
    if _was_left_in_another_job(variables):
        del variables[JOB_ID_VARIABLE]
    return scheduled_job(variables, script_and_arguments())


def _was_left_in_another_job(variables: Mapping[str, str]) -> bool:
    """Returns whether the job that was left is another one. A job that a training submits inherits its variables."""
    _, _, left = variables.get(LEFT_JOB_VARIABLE, "").partition(":")
    if variables.get(JOB_ID_VARIABLE) != "" or not left.startswith("slurm/") or not variables.get("SLURM_JOB_ID"):
        return False
    return left.rpartition("/")[0] != slurm_job_name(variables)


def leave_job() -> None:
    """Takes this process, and those that it starts later, out of the job's training."""
    if (left := job()) is not None:
        os.environ[JOB_ID_VARIABLE] = ""
        os.environ[LEFT_JOB_VARIABLE] = f"{os.getpid()}:{left.name}"


def left_job() -> str | None:
    """Returns the name of the job that this process itself has left; None in processes that it starts."""
    pid, _, name = os.environ.get(LEFT_JOB_VARIABLE, "").partition(":")
    return name if name and pid == str(os.getpid()) else None
