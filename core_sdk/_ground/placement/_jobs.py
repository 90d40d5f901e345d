"""Names a scheduler's job, so that the next start of the job finds the trial of the previous one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

JOB_ID_VARIABLE = "CORE_SDK_JOB_ID"

# Numbers from here on belong to batch scripts, interactive shells and logins, not to steps.
_FIRST_RESERVED_STEP = 0xFFFFFFF0


class Job(msgspec.Struct, frozen=True):
    """The identity of a training in a scheduler's job."""

    name: str
    num_restarts: int | None
    """The number of restarts by the scheduler; None if they are not counted, and every start resumes the training."""


def scheduled_job(variables: Mapping[str, str], command: Sequence[str]) -> Job | None:
    """Returns the job to which this training belongs, by `CORE_SDK_JOB_ID` or Slurm; None if there is none.

    With an empty `CORE_SDK_JOB_ID` there is none, even in a job of Slurm. `command` distinguishes the trainings of one
    job. The numbers of steps cannot, since a requeue may start the steps in another order.
    """
    if job_id := variables.get(JOB_ID_VARIABLE):
        return named_job(job_id)
    if job_id == "" or not variables.get("SLURM_JOB_ID"):
        return None
    count = variables.get("SLURM_RESTART_COUNT", "")
    return Job(f"{slurm_job_name(variables)}/{_digest(command)}", int(count) if count.isdecimal() else 0)


def named_job(job_id: str) -> Job:
    """Returns the job that the user has named. Every start with this name resumes its training."""
    return Job(f"job/{job_id}", None)


def slurm_step_name(variables: Mapping[str, str]) -> str:
    """Returns `slurm/CLUSTER/JOB[_TASK]/STEP`, which no other step has at the same time."""
    step = slurm_step(variables)
    return f"{slurm_job_name(variables)}/{'batch' if step is None else step}"


def slurm_step(variables: Mapping[str, str]) -> int | None:
    """Returns the number of the step that `srun` has started; None outside of a step."""
    step = variables.get("SLURM_STEP_ID", "")
    if not variables.get("SLURM_JOB_ID") or "SLURM_PROCID" not in variables or not step.isdecimal():
        return None
    return int(step) if int(step) < _FIRST_RESERVED_STEP else None


def slurm_job_name(variables: Mapping[str, str]) -> str:
    """Returns `slurm/CLUSTER/JOB[_TASK]`. Raises `KeyError` outside of a job of Slurm."""
    job = variables["SLURM_JOB_ID"]
    if variables.get("SLURM_ARRAY_JOB_ID") and variables.get("SLURM_ARRAY_TASK_ID"):
        job = f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
    return f"slurm/{variables.get('SLURM_CLUSTER_NAME', '')}/{job}"


def _digest(command: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(command).encode(errors="surrogateescape")).hexdigest()[:16]
