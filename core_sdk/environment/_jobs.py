"""The scheduler's job that this process is a training of."""

from __future__ import annotations

import os

from core_sdk.environment._command import script_and_arguments
from core_sdk.environment._names import LEFT_JOB_VARIABLE
from core_sdk.placement import JOB_ID_VARIABLE, Job, scheduled_job


def job() -> Job | None:
    """The scheduler's job that this process is a training of."""
    return scheduled_job(os.environ, script_and_arguments())


def leave_job() -> None:
    """From now on what this process begins, and what processes do that it starts, is none of the job's training."""
    if (left := job()) is not None:
        os.environ[JOB_ID_VARIABLE] = ""
        os.environ[LEFT_JOB_VARIABLE] = f"{os.getpid()}:{left.name}"


def left_job() -> str | None:
    """The name of the job that this very process has left; processes that it starts have left none."""
    pid, _, name = os.environ.get(LEFT_JOB_VARIABLE, "").partition(":")
    return name if name and pid == str(os.getpid()) else None
