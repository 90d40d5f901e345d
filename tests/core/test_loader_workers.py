"""A stop that is sent to every process of a training reaches its rank, although the loader's workers hear it, too."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import TIMEOUT_S, wait_for
from promises import promise

from core_sdk import client
from core_sdk._machine.processes import STOPPED

SCRIPT = str(Path(__file__).parent / "trained_with_workers.py")
PLACES = ("starting", "fetching", "first batch", "between epochs", "validation", "saving")
METHODS = ("fork", "forkserver", "spawn")
MOST_WORKERS = 8
# The two seconds that are promised, and what a busy machine may need, also to start workers for the last step.
END_S, END_OF_WORKER_S = 20, 5


@dataclass(frozen=True)
class Case:
    """A training, and the place at which it is when the signals come."""

    launch: str = "plain"
    num_ranks: int = 1
    shape: str = "ordinary"
    place: str = "first batch"
    num_workers: int = 2
    method: str = "fork"
    workers: str = "new"
    """Whether workers are `persistent` or `new` for each epoch."""
    number: signal.Signals = signal.SIGTERM

    def __str__(self) -> str:
        return (
            f"{self.number.name}, {self.launch}, {self.num_ranks} ranks, {self.shape}, {self.place}, "
            f"{self.num_workers} {self.workers} workers by {self.method}"
        )

    @property
    def is_possible(self) -> bool:
        return (
            (self.num_ranks == 1 or self.launch == "launcher")
            and (self.shape != "function" or (self.launch == "plain" and self.place != "saving"))
            and (self.num_workers > 0 or (self.place not in ("starting", "fetching") and self.method == "fork"))
            and (self.num_workers > 0 or self.workers == "new")
            and self.num_ranks * self.num_workers <= MOST_WORKERS
        )

    @property
    def end_s(self) -> int:
        return END_S + END_OF_WORKER_S * self.num_ranks * self.num_workers

    def command(self) -> list[str]:
        script = [SCRIPT, self.shape, self.place, str(self.num_workers), self.method, self.workers]
        match self.launch:
            case "launcher":
                launcher = ["-m", "launch.torch_distributed", "--nproc-per-node", str(self.num_ranks), "--"]
                return [sys.executable, *launcher, sys.executable, *script]
            case "core-sdk run":
                return [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, *script]
        return [sys.executable, *script]

    def variables(self) -> dict[str, str]:
        """In a job, a stopped script exits with a status of its own. Under Slurm, SIGUSR1 is a stop."""
        job = {"SLURM_JOB_ID": "1"} if self.number == signal.SIGUSR1 else {"CORE_SDK_JOB_ID": "job"}
        return {} if self.launch == "core-sdk run" and self.number == signal.SIGTERM else job


QUICK = [
    Case(place="starting", num_workers=1, method="spawn", number=signal.SIGUSR1),
    Case(place="first batch", num_workers=1, method="forkserver", workers="persistent"),
    Case("launcher", 2, "stateful", place="fetching"),
]


def all_cases() -> list[Case]:
    """Returns a hundred of all possible trainings, the same each time."""
    launches = ("plain", "core-sdk run", "launcher")
    shapes = ("ordinary", "stateful", "resumable", "trial", "function")
    numbers = (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1)
    product = itertools.product(
        launches, (1, 2, 4), shapes, PLACES, (0, 1, 2, 4, 8), METHODS, ("new", "persistent"), numbers
    )
    possible = [case for values in product if (case := Case(*values)).is_possible]
    return random.Random(0).sample(possible, 100)


class Training:
    """The processes of a training, which is at its place and waits for the signals."""

    def __init__(self, case: Case, directory: Path) -> None:
        self.case = case
        self._directory = directory
        directory.mkdir()
        self._home = str(directory / "home")
        self._output = directory / "output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                case.command(),
                cwd=directory,
                env=os.environ | case.variables() | {"CORE_SDK_HOME": self._home},
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_at_place(self) -> None:
        num_ranks = 2 if self.case.shape == "function" else self.case.num_ranks
        if self.case.place == "saving":
            num_ranks = 1  # the others have nothing to save
        ready = [self._directory / f"ready-{rank}" for rank in range(num_ranks)]
        wait_for(lambda: all(path.exists() for path in ready) or self._process.poll() is not None)
        assert self._process.poll() is None, self.output

    def signal_all(self, numbers: Sequence[signal.Signals]) -> None:
        """Sends the signals to every process, as Slurm does, and lets the training go on."""
        processes = self.processes()
        for number, process in itertools.product(numbers, processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        (self._directory / "sent").touch()
        self._sent_at = time.monotonic()

    def kill_rank(self) -> None:
        self._process.kill()
        (self._directory / "sent").touch()

    def wait(self) -> tuple[int, float]:
        """Returns the exit status, and the seconds since the signals."""
        status = self._process.wait(TIMEOUT_S)
        return status, time.monotonic() - self._sent_at

    def wait_until_nothing_is_left(self) -> None:
        wait_for(lambda: not self.processes(), END_S)

    def processes(self) -> list[psutil.Process]:
        """Returns all processes that belong to the training, wherever they hang in the tree."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("CORE_SDK_HOME") == self._home:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    @property
    def output(self) -> str:
        return f"{self.case}:\n{self._output.read_text()}"

    def trial(self) -> Any:
        return client.Tracker(self._home).get_trial(1)

    def close(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


def check_all_stop(cases: Sequence[Case], directory: Path, times: int = 1) -> None:
    """Every training saves, is paused, says so by its exit status, and leaves no process."""
    trainings = [Training(case, directory / str(index)) for index, case in enumerate(cases)]
    try:
        for training in trainings:
            training.wait_at_place()
            training.signal_all([training.case.number] * times)
            status, seconds = training.wait()

            trial = training.trial()
            steps = [report.steps_completed for report in trial.iter_metrics("training")]
            stored = [checkpoint.metadata["steps_completed"] for checkpoint in trial.list_checkpoints()]
            assert (status, trial.state.name) == (STOPPED, "PAUSED"), training.output
            assert max(stored) == max(steps), training.output
            assert seconds < training.case.end_s, training.output
            assert "process died unexpectedly" not in training.output  # the resource tracker has survived, too
            training.wait_until_nothing_is_left()
    finally:
        for training in trainings:
            training.close()


@promise("loader-workers-stay")
def test_a_stop_that_reaches_every_process_is_obeyed(tmp_path: Path) -> None:
    """Signals to all processes, also to a loader's workers, stop a training in good order."""
    check_all_stop(QUICK, tmp_path)


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_a_stop_that_reaches_every_process_is_obeyed_at_every_place(case: Case, tmp_path: Path) -> None:
    """The same at every place, for every shape, launch, start method and number of workers; also for two signals."""
    check_all_stop([case], tmp_path, times=1 + case.num_workers % 2)


@promise("loader-workers-stay")
def test_workers_end_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    """No worker outlives its rank, however it was started, also if it has left a stop to the rank before."""
    trainings = [Training(Case(method=method), tmp_path / method) for method in METHODS]
    try:
        for training in trainings:
            training.wait_at_place()
            for process in training.processes():
                if process.pid != training.pid:
                    process.terminate()
            training.kill_rank()

            training.wait_until_nothing_is_left()
    finally:
        for training in trainings:
            training.close()


def test_other_children_hear_signals_as_ever(tmp_path: Path) -> None:
    """Processes that the script has started itself end at SIGTERM, also children of the same fork server."""
    run = subprocess.run(
        [sys.executable, SCRIPT, "others", "nowhere", "1", "fork"], cwd=tmp_path, capture_output=True, text=True
    )

    ends = dict.fromkeys(METHODS, -signal.SIGTERM)
    assert run.stdout.splitlines() == [str(ends)], run.stderr
