"""Slurm's commands, whose answers are plain text in every version."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._execution.slurm.reasons import lasts, plain_reason
from core_sdk._ground.environment import agent_variables
from core_sdk.errors import SlurmError

_ANSWER_S = 60.0
_NOT_TAKEN = "Slurm has not taken the job"
_ADVICE = "Slurm's commands are found on the login nodes of a cluster"
_FIELD = re.compile(r"(\S+?)=(\S*)")

_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}


@dataclass(frozen=True)
class JobState:
    """The state of a job, in Slurm's words."""

    name: str
    """Such as PENDING, RUNNING or CANCELLED."""
    reason: str = ""
    """The reason for which it waits, or has ended."""
    nodes: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.name in _WAITING

    @property
    def is_over(self) -> bool:
        return self.name not in _WAITING | _RUNNING

    @property
    def words(self) -> str:
        """The state in words: for a job that waits, why."""
        return f"waits: {plain_reason(self.reason)}" if self.is_waiting else f"is {self.name}"

    @property
    def cannot_start(self) -> bool:
        """Whether it will not start unless somebody changes something, as far as can be told."""
        return self.is_waiting and lasts(self.reason)


def submit(script: Path, *options: str, arguments: Sequence[str] = ()) -> str:
    """Submits a batch script, and returns the job's id; with `--array`, what comes before the `_`.

    Raises `SlurmError`.
    """
    answer = _ask(["sbatch", "--parsable", *options, str(script), *arguments], _NOT_TAKEN)
    return answer.strip().partition(";")[0]


def check(script: Path) -> None:
    """Raises `SlurmError` if Slurm would not take this batch script now."""
    _ask(["sbatch", "--test-only", str(script)], _NOT_TAKEN)


def cancel(job_ids: Sequence[str], *options: str) -> None:
    """Cancels jobs, or sends them a signal. Does nothing to those that have ended. Raises `SlurmError`."""
    _ask(["scancel", *options, *job_ids], f"{'job' if len(job_ids) == 1 else 'jobs'} {', '.join(job_ids)} not canceled")


def renice(job_ids: Sequence[str], nice: int) -> None:
    """Puts jobs that wait behind others: the larger `nice`, the later they start. Raises `SlurmError`."""
    _ask(["scontrol", "update", f"JobId={','.join(job_ids)}", f"Nice={nice}"], "jobs cannot be moved in the queue")


def max_array_size() -> int | None:
    """Returns the number of places of an array, from 0; None if Slurm does not say. Raises `SlurmError`."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _ask(["scontrol", "show", "config"], "scontrol"), re.MULTILINE)
    return int(found[1]) if found else None


def states(job_ids: Iterable[str]) -> dict[str, JobState]:
    """Returns the states of these jobs, without those that Slurm has forgotten. Raises `SlurmError`.

    Asks once for all. The accounting, if there is one, is asked only for jobs that the list lacks, and the controller
    itself for those that both lack: sites keep lists for a while instead of asking.
    """
    wanted = set(job_ids)
    named = ",".join(sorted({each.partition("_")[0] for each in wanted}))
    try:
        answer = _ask(
            ["squeue", "--noheader", "--array", "--states=all", f"--jobs={named}", "--format=%i|%T|%r|%N"], "squeue"
        )
    except SlurmError as error:
        if "Invalid job id" not in error.reason:
            raise
        answer = ""
    found = parse_states(answer)
    if missing := wanted - found.keys():
        try:
            named = ",".join(sorted(missing))
            answer = _ask(
                ["sacct", "-nXP", "--array", f"--jobs={named}", "--format=JobID,State,Reason,NodeList"], "sacct"
            )
            found |= parse_states(answer)
        except SlurmError:  # a cluster without accounting
            pass
    return found | {job_id: state for job_id in wanted - found.keys() if (state := _state_told(job_id)) is not None}


def _state_told(job_id: str) -> JobState | None:
    """Returns the state of a job that a list lacks, which may be an older answer; None if the controller has none.

    Raises `SlurmError`.
    """
    try:
        told = details(job_id)
    except SlurmError as error:
        if "Invalid job id" in error.reason:
            return None
        raise
    return _state_of(told["JobState"], told.get("Reason", ""), told.get("NodeList", ""))


def own_scripts() -> list[str]:
    """Returns the paths of the batch scripts of all jobs of this user that wait or run. Raises `SlurmError`."""
    return _ask(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%o"], "squeue").splitlines()


def details(job_id: str) -> Mapping[str, str]:
    """Returns the fields of a job that the controller knows, by the names of `scontrol show job`.

    Raises `SlurmError`.
    """
    answer = _ask(["scontrol", "--oneliner", "show", "job", job_id], f"job {job_id} cannot be asked about")
    return dict(_FIELD.findall(answer))


def has_gpus(partition: str) -> bool:
    """Returns whether the nodes of a partition have GPUs; empty stands for the default one. Raises `SlurmError`."""
    options = [f"--partition={partition}"] if partition else []
    answer = _ask(["sinfo", "--noheader", "--format=%P|%G", *options], "the partitions cannot be listed")
    return parse_has_gpus(answer, partition)


def parse_states(answer: str) -> dict[str, JobState]:
    """Returns the states of jobs by id, from lines `ID|STATE|REASON|NODES`. Pure."""
    found = {}
    for line in answer.splitlines():
        job_id, state, reason, nodes = (line.split("|") + [""] * 3)[:4]
        if job_id.replace("_", "").isdecimal():
            found[job_id] = _state_of(state, reason, nodes)
    return found


def _state_of(state: str, reason: str, nodes: str) -> JobState:
    # `CANCELLED by 0`; where there is none, the reason is None, and the nodes are `None assigned` or `(null)`.
    return JobState(state.partition(" ")[0], *("" if "None" in x or "null" in x else x for x in (reason, nodes)))


def parse_has_gpus(answer: str, partition: str) -> bool:
    """Returns whether a partition has GPUs, from lines `PARTITION|GRES`; a star marks the default one. Pure."""
    rows = [line.split("|") for line in answer.splitlines() if "|" in line]
    return any(
        re.search(r"\bgpu\b", gres)
        for name, gres in rows
        if name.rstrip("*") == partition or (not partition and "*" in name)
    )


def _ask(argv: Sequence[str], problem: str) -> str:
    """Runs a command and returns its answer. Raises `SlurmError`."""
    # What the job of this process was given must not become part of another job.
    kept = {name: value for name, value in agent_variables().items() if not name.startswith("SLURM_")}
    kept |= {name: value for name, value in agent_variables().items() if name == "SLURM_CONF"}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            env=kept,
        )
    except FileNotFoundError as error:
        raise SlurmError("Slurm cannot be used", f"there is no `{argv[0]}` on this machine", _ADVICE) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError("Slurm cannot be used", f"`{argv[0]}` has not answered for {_ANSWER_S:g} s") from error
    if done.returncode != 0:
        raise SlurmError(problem, _reason(done.stderr or done.stdout, done.returncode), _advice(argv, done.stderr))
    return done.stdout


def _reason(text: str, status: int) -> str:
    """Returns the last message of a command without the command's name."""
    lines = [line.rpartition("error: ")[2].strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else f"it has ended with status {status}"


def _advice(argv: Sequence[str], errors: str) -> str:
    """Returns what there is instead of what Slurm does not know; empty if it cannot be told."""
    if argv[0] != "sbatch":
        return ""
    user = pwd.getpwuid(os.getuid()).pw_name
    lists = {
        "partition": ["sinfo", "--noheader", "--format=%R"],
        "account": ["sacctmgr", "-nP", "show", "associations", f"user={user}", "format=account"],
        "qos": ["sacctmgr", "-nP", "show", "qos", "format=name"],
    }
    for kind, asked in lists.items():
        if f"invalid {kind}" in errors.lower():
            try:
                names = sorted(set(_ask(asked, kind).split()))
            except SlurmError:
                return ""
            return f"There is {', '.join(names)}" if names else ""
    return ""
