"""The examples run as a reader would run them, and keep what their first lines say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# They train, with PyTorch, to an accuracy; the first test waits for all of them.
pytestmark = pytest.mark.timeout(600)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHECKPOINTS = EXAMPLES / "2_checkpoints.py"
SEARCH_READY = EXAMPLES / "3_search_ready.py"
SCRIPTS = ["0_plain.py", "1_metrics.py", CHECKPOINTS.name, SEARCH_READY.name]
CORE_SDK = Path(sys.executable).with_name("core-sdk")
STEPS_PER_EPOCH = 45

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""

Point = tuple[str, int, dict[str, float]]
"""Group, step and metrics."""


@dataclass
class Shell:
    """Runs commands with a home of their own."""

    home: Path

    @property
    def variables(self) -> dict[str, str]:
        return os.environ | {"CORE_SDK_HOME": str(self.home)}

    def run(self, *command: object) -> str:
        """Returns the command's output; it must succeed."""
        arguments = [str(argument) for argument in command]
        result = subprocess.run(arguments, env=self.variables, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
        return result.stdout

    def start(self, *command: object) -> subprocess.Popen[str]:
        arguments = [str(argument) for argument in command]
        return subprocess.Popen(arguments, env=self.variables, stdout=subprocess.PIPE, text=True)

    def series(self, trial_id: int) -> list[Point]:
        reports = json.loads(self.run(CORE_SDK, "trial", "metrics", trial_id, "--json"))
        return [(report["group"], report["steps_completed"], report["metrics"]) for report in reports]

    def trial(self, trial_id: int) -> dict[str, Any]:
        (trial,) = (t for t in json.loads(self.run(CORE_SDK, "trial", "list", "--json")) if t["trial_id"] == trial_id)
        return dict(trial)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


@dataclass
class Run:
    """One script's run, from its start to its end, with its default arguments."""

    shell: Shell
    output: str


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All steps, each run once with nothing but Python, and side by side to save time."""
    shells = {script: Shell(tmp_path_factory.mktemp("home")) for script in SCRIPTS}
    processes = {script: shell.start(sys.executable, EXAMPLES / script) for script, shell in shells.items()}
    outputs = {script: process.communicate()[0] for script, process in processes.items()}
    assert [process.returncode for process in processes.values()] == [0] * len(SCRIPTS)
    return {script: Run(shells[script], outputs[script]) for script in SCRIPTS}


@pytest.fixture(scope="module")
def uninterrupted(undisturbed: dict[str, Run]) -> list[Point]:
    """What `2_checkpoints.py` reports if nobody disturbs it."""
    return undisturbed[CHECKPOINTS.name].shell.series(1)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_step_reaches_the_stated_accuracy(undisturbed: dict[str, Run], script: str) -> None:
    """Each example reaches the accuracy that it states."""
    output = undisturbed[script].output

    assert_reaches_its_accuracy(output)


def test_a_paused_and_resumed_training_reports_as_if_undisturbed(shell: Shell, uninterrupted: list[Point]) -> None:
    """Pause and resume, by the commands that a person types, leave no trace in any series."""
    with shell.start(CORE_SDK, "run", "--", sys.executable, CHECKPOINTS) as process:
        read_until(process, "epoch 2,")
        shell.run(CORE_SDK, "trial", "pause", 1)
        process.communicate()
    paused = shell.trial(1)
    output = shell.run(CORE_SDK, "trial", "resume", 1)

    assert (process.returncode, paused["state"]) == (PAUSED, "PAUSED")
    assert 2 * STEPS_PER_EPOCH <= paused["steps_completed"] < uninterrupted[-1][1]
    assert_reaches_its_accuracy(output)
    assert shell.series(1) == uninterrupted
    assert shell.trial(1)["state"] == "COMPLETED"


def test_a_killed_and_resumed_training_reports_as_if_undisturbed(shell: Shell, uninterrupted: list[Point]) -> None:
    """A killed and resumed training shows the same reports as an undisturbed one."""
    with shell.start(sys.executable, CHECKPOINTS, "--epochs", 6) as process:
        read_until(process, "epoch 2,")
        process.send_signal(signal.SIGKILL)
    shell.run(CORE_SDK, "trial", "resume", 1)

    assert process.returncode == -signal.SIGKILL
    assert shell.series(1) == [point for point in uninterrupted if point[1] <= 6 * STEPS_PER_EPOCH]


def test_a_continued_training_counts_from_zero_with_what_was_learned(undisturbed: dict[str, Run]) -> None:
    """`trial continue` begins a new trial with the learned weights, whose steps count from zero."""
    shell = undisturbed[CHECKPOINTS.name].shell

    with shell.start(CORE_SDK, "trial", "continue", 1) as process:
        read_until(process, "epoch 2,")
        shell.run(CORE_SDK, "trial", "pause", 2)
        process.communicate()

    first_of_the_old, first_of_the_new = (first_validation(shell.series(trial_id)) for trial_id in (1, 2))
    assert first_of_the_new[1] == first_of_the_old[1] == STEPS_PER_EPOCH
    assert first_of_the_new[2]["accuracy"] > first_of_the_old[2]["accuracy"] + 0.1


def test_the_search_ready_step_trains_as_its_trial_says(undisturbed: dict[str, Run]) -> None:
    """Hyperparameters and length are recorded with the trial, and each validation carries the time metric."""
    shell = undisturbed[SEARCH_READY.name].shell

    validations = [metrics for group, _, metrics in shell.series(1) if group == "validation"]
    assert [metrics["epochs"] for metrics in validations] == list(range(1, 21))
    assert shell.trial(1)["hparams"] == {"batch_size": 32, "learning_rate": 0.001, "num_filters": 16}


def assert_reaches_its_accuracy(output: str) -> None:
    """Checks the last line, which states what was reached and what every step promises."""
    match = re.fullmatch(r"accuracy (.+) on the test images \(expected: 0\.97 or more\)", output.splitlines()[-1])
    assert match and float(match[1]) >= 0.97, output


def first_validation(points: list[Point]) -> Point:
    return next(point for point in points if point[0] == "validation")


def read_until(process: subprocess.Popen[str], start: str) -> None:
    """Returns once the process prints a line that starts so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return
    pytest.fail(f"the script ended without a line starting with {start!r}")
