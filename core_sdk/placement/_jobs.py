"""Names a scheduler's job, so that the next start of the job finds the trial of the previous one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

JOB_ID_VARIABLE = "CORE_SDK_JOB_ID"

# From here on Slurm's numbers are not of steps, but of batch scripts, interactive shells and logins.
_FIRST_RESERVED_STEP = 0xFFFFFFF0


@dataclass(frozen=True)
class Job:
    """One training of a job."""

    name: str
    num_restarts: int | None
    """How often the scheduler has restarted it; None if nobody counts, and every start goes on."""


def scheduled_job(variables: Mapping[str, str], command: Sequence[str]) -> Job | None:
    """The job that this training belongs to, by `CORE_SDK_JOB_ID` or Slurm; None if nothing names one.

    With an empty `CORE_SDK_JOB_ID` it belongs to none, even in a job of Slurm. `command` distinguishes the trainings of
    one job. The numbers of steps do not, since a requeue may start the steps in another order.
    """
    if job_id := variables.get(JOB_ID_VARIABLE):
        return named_job(job_id)
    if job_id == "" or not variables.get("SLURM_JOB_ID"):
        return None
    count = variables.get("SLURM_RESTART_COUNT", "")
    return Job(f"{slurm_job_name(variables)}/{_digest(command)}", int(count) if count.isdecimal() else 0)


def named_job(job_id: str) -> Job:
    """The job that the user has named: every start with this name goes on."""
    return Job(f"job/{job_id}", None)


def slurm_step_name(variables: Mapping[str, str]) -> str:
    """`slurm/CLUSTER/JOB[_TASK]/STEP`, which no other step has at the same time."""
    step = slurm_step(variables)
    return f"{slurm_job_name(variables)}/{'batch' if step is None else step}"


def slurm_step(variables: Mapping[str, str]) -> int | None:
    """The number of the step that `srun` has started; None outside of a step."""
    step = variables.get("SLURM_STEP_ID", "")
    if not variables.get("SLURM_JOB_ID") or "SLURM_PROCID" not in variables or not step.isdecimal():
        return None
    return int(step) if int(step) < _FIRST_RESERVED_STEP else None


def slurm_job_name(variables: Mapping[str, str]) -> str:
    """`slurm/CLUSTER/JOB[_TASK]`. Raises `KeyError` outside of a job of Slurm."""
    job = variables["SLURM_JOB_ID"]
    if variables.get("SLURM_ARRAY_JOB_ID") and variables.get("SLURM_ARRAY_TASK_ID"):
        job = f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"
    return f"slurm/{variables.get('SLURM_CLUSTER_NAME', '')}/{job}"


def _digest(command: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(command).encode(errors="surrogateescape")).hexdigest()[:16]
