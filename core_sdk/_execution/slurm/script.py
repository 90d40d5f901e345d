"""Writes the batch script of a trial. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

GRACE_S = 300
"""The time before the end of a job at which the training is asked to stop."""
ARRAY_SIZE = 1000
"""The most places of an array, from 0. Slurm takes so many unless its administrator has set a lower limit."""

_LONG_NAMES = {
    "-A": "--account", "-C": "--constraint", "-G": "--gpus", "-J": "--job-name", "-N": "--nodes", "-W": "--wait",
    "-a": "--array", "-c": "--cpus-per-task", "-d": "--dependency", "-e": "--error", "-n": "--ntasks",
    "-o": "--output", "-p": "--partition", "-q": "--qos", "-t": "--time",
}  # fmt: skip
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})")
_OF_SLOTS = ("--cpus-per-gpu", "--cpus-per-task", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gres")
_REFUSED = {
    "--job-name": "it has the trial's number",
    "--nodes": "give `--nodes` to core-sdk itself",
    "--output": "the output lies with the trial: `core-sdk trial logs` shows it",
    "--signal": "write it as `--signal=B:USR1@SECONDS`, so that it reaches what asks the training to stop",
    "--wrap": "the command comes after `--`",
    **dict.fromkeys(("--error", "--open-mode"), "the output lies with the trial: `core-sdk trial logs` shows it"),
    **dict.fromkeys(("--array",), "a job runs one trial"),
    **dict.fromkeys(("--requeue", "--no-requeue"), "a job goes on after a requeue, and so it is requeued"),
    **dict.fromkeys(
        ("--ntasks", "--ntasks-per-node", "--ntasks-per-gpu", "--tasks-per-node"),
        "a job has one task on each node, whose launcher starts the ranks; `--slots` says how many",
    ),
}


@dataclass(frozen=True)
class JobRequest:
    """The resources that jobs of a trial request from Slurm."""

    num_nodes: int = 1
    num_slots: int | None = None
    """The slots of all nodes together; None if the options alone say what a node has."""
    has_gpus: bool = False
    """Whether slots are GPUs, or else CPUs."""
    options: tuple[str, ...] = ()
    """Further options of sbatch, each as it stands in a line `#SBATCH …`."""
    is_requeued: bool = True
    """Whether Slurm starts the job again after a preemption or the death of a node."""

    @property
    def partition(self) -> str:
        """The partition that the options name; empty for the default one."""
        return self.named.get("--partition", "")

    @property
    def named(self) -> dict[str, str]:
        """The options by their long names, each with its value."""
        return dict(pair for option in self.options for pair in _named(shlex.split(option)))

    def problem(self) -> str:
        """Returns what is wrong with the request; empty if nothing is."""
        if self.num_slots is not None and self.num_slots % self.num_nodes:
            return f"{self.num_slots} slots cannot be divided over {self.num_nodes} nodes: give a multiple"
        for option in self.options:
            if "\n" in option:
                return f"{option!r} has more than one line"
            try:
                named = dict(_named(shlex.split(option)))
            except ValueError as error:
                return f"{option!r} cannot be read: {error}"
            if not named or not option.startswith("-"):
                return f"{option!r} is no option of sbatch, such as --partition=gpu"
            for name, value in named.items():
                if name in _REFUSED and not (name == "--signal" and value.startswith("B:USR1@")):
                    return f"{name} cannot be given to sbatch here: {_REFUSED[name]}"
        limit_s, grace = time_limit_s(self.named.get("--time", "")), self.named.get("--signal", "").partition("@")[2]
        grace_s = int(grace) if grace.isdecimal() else GRACE_S
        if limit_s is not None and limit_s <= grace_s:
            return (
                f"with --time={self.named['--time']} each job would stop as it begins, since the training is asked to "
                f"stop {grace_s} s before the end: give more time, or a later stop, as with `--signal=B:USR1@60`"
            )
        return ""


@dataclass(frozen=True)
class JobPlace:
    """The home and the programs that all nodes of a job must have."""

    home: Path
    identity: str
    """The home's identity."""
    versions: str
    """The versions of Python and torch, such as `3.11/2.6.0`."""
    python: str = sys.executable
    """The interpreter's path."""

    def command(self, trial: object, *options: str) -> str:
        """Returns the line that runs the trial's job."""
        told = [f"--trial={trial}", f"--home={self.identity}", f"--versions={self.versions}", *options]
        return f"exec {shlex.quote(self.python)} -P -m core_sdk._execution.slurm {' '.join(told)}"


def trial_script(request: JobRequest, trial_id: int, place: JobPlace) -> str:
    """Returns the batch script of the jobs of one trial. Each job goes on with the trial."""
    return _script(
        request,
        f"Trial {trial_id}: its first job runs this script, and so does each one that goes on with it.",
        name=f"core-sdk-{trial_id}",
        output=f"{place.home}/runs/{trial_id}/slurm-%j.out",
        home=place.home,
        lines=[place.command(trial_id)],
    )


def experiment_script(request: JobRequest, experiment_id: int, place: JobPlace) -> str:
    """Returns the batch script of arrays of an experiment's trials. Its argument is the trial at place 0."""
    return _script(
        request,
        f"Experiment {experiment_id}: job N of an array runs trial $1 + N.",
        name=f"core-sdk-experiment-{experiment_id}",
        output="/dev/null",
        home=place.home,
        lines=[
            "trial=$(($1 + SLURM_ARRAY_TASK_ID))",
            'exec >>"$CORE_SDK_HOME/runs/$trial/slurm-${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID.out" 2>&1 || exit',
            place.command("$trial", "--in-experiment"),
        ],
    )


def _script(request: JobRequest, comment: str, *, name: str, output: str, home: Path, lines: Sequence[str]) -> str:
    given, own = request.named, _own_options(request, name, output)
    return "".join(
        f"{line}\n"
        for line in (
            "#!/bin/bash",
            f"# {comment}",
            *(f"#SBATCH {option}" for option in own if option.partition("=")[0] not in given),
            *(f"#SBATCH {option}" for option in request.options),
            "",
            f"export CORE_SDK_HOME={shlex.quote(str(home))}",
            *lines,
        )
    )


def time_limit_s(text: str) -> int | None:
    """Returns the seconds of a time as sbatch takes it; None if it is another text, or stands for no limit."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    parts = found["clock"].split(":")
    if found["days"] is None and len(parts) < 3:
        parts.insert(0, "0")  # minutes, or minutes and seconds
    hours, minutes, seconds = (int(part) for part in (*parts, "0", "0")[:3])
    return (((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) or None


def arrays_of(trial_ids: Iterable[int], num_places: int) -> list[tuple[int, list[int]]]:
    """Divides trials into arrays. Returns the trial at place 0 of each, and its trials, in the order of the ids."""
    ordered = groupby(sorted(trial_ids), lambda trial_id: trial_id // num_places * num_places)
    return [(base, list(of_array)) for base, of_array in ordered]


def step_command(num_nodes: int, argv: Sequence[str]) -> list[str]:
    """Returns the command that starts `argv` once on each node of the job."""
    if num_nodes == 1:
        return list(argv)
    # srun has not taken this from the job since Slurm 22.05.
    cpus = "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}"
    step = f'exec srun --nodes={num_nodes} --ntasks-per-node=1 {cpus} --kill-on-bad-exit=1 "$@"'
    return ["/bin/sh", "-c", step, "srun", *argv]


def _own_options(request: JobRequest, name: str, output: str) -> Iterator[str]:
    yield f"--job-name={name}"
    yield f"--output={shlex.quote(output)}"
    yield "--open-mode=append"
    yield f"--nodes={request.num_nodes}"
    yield "--ntasks-per-node=1"
    if request.num_slots is not None and not any(name in request.named for name in _OF_SLOTS):
        kind = "gpus-per-node" if request.has_gpus else "cpus-per-task"
        yield f"--{kind}={request.num_slots // request.num_nodes}"
    yield f"--signal=B:USR1@{GRACE_S}"
    yield "--requeue" if request.is_requeued else "--no-requeue"


def _named(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the options among the words by their long names, each with its value."""
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) and not words[index + 1].startswith("-") else ""
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            yield name, value if equals else following
        elif word.startswith("-"):
            yield _LONG_NAMES.get(word[:2], word[:2]), word[2:] or following
