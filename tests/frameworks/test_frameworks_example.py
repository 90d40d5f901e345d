"""One training under torchrun, Horovod and DeepSpeed: to the same accuracy, with a pause in the middle of each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from frameworks.environments import environment
from parts import needs, require

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "6_frameworks.py"
CORE_SDK = Path(sys.executable).with_name("core-sdk")
NUM_EPOCHS = 10
STEPS_PER_EPOCH = 45
NUM_TEST_IMAGES = 360

TIMEOUT_S = 300
# Each test starts six to eight processes that import torch, and what brings seconds alone may take minutes in company.
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""

TOLERANCE = 4 / NUM_TEST_IMAGES
"""Same seed, same batches: what differs is in which order numbers are summed up, and with it a few test images."""

LAUNCHERS = {
    "torch": ("launch.torch_distributed", "--nproc-per-node=2"),
    "horovod": ("launch.horovod", "-np", "2"),
    "deepspeed": ("launch.deepspeed", "--num_gpus=2"),
}


@dataclass(frozen=True)
class Training:
    """Under one framework, on two ranks, as a trial of its own."""

    framework: str
    python: Path
    variables: Mapping[str, str]

    def command(self, *arguments: str) -> list[str]:
        module, *overrides = LAUNCHERS[self.framework]
        launch = [str(self.python), "-m", module, *overrides, "--", "python", str(EXAMPLE), *arguments]
        return [str(CORE_SDK), "run", "--", *launch]

    def core_sdk(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(CORE_SDK), *arguments])

    def answer(self, *arguments: str) -> Any:
        return json.loads(self.core_sdk(*arguments, "--json").stdout)

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env=os.environ | self.variables, timeout=TIMEOUT_S, check=False
        )

    def run_until(self, begin: str, then: Callable[[], object], command: list[str]) -> int:
        """Does something when the output has such a line, and returns the exit status."""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | self.variables) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(begin):
                    then()
            return process.wait(TIMEOUT_S)


def training(framework: str) -> Training:
    if framework == "torch":
        return Training(framework, Path(sys.executable), {"OMP_NUM_THREADS": "1"})
    found = environment("horovod" if framework == "horovod" else "deepspeed")
    require(found.name)
    return Training(framework, found.python, found.variables())


def accuracy(output: str) -> float:
    found = re.search(r"^\[rank=0\] accuracy (\S+) on the test images \(expected: (\S+) or more\)", output, re.M)
    assert found is not None, output
    assert float(found[1]) >= float(found[2])
    return float(found[1])


@pytest.mark.parametrize(
    ("framework", "arguments"),
    [
        ("torch", ()),
        pytest.param("horovod", (), marks=needs("horovod")),
        pytest.param("deepspeed", ("--zero-stage", "1"), marks=needs("deepspeed")),
        pytest.param("deepspeed", ("--zero-stage", "2"), marks=needs("deepspeed")),
        pytest.param("deepspeed", ("--zero-stage", "3"), marks=needs("deepspeed")),
    ],
)
def test_a_paused_training_goes_on_to_its_accuracy(framework: str, arguments: tuple[str, ...]) -> None:
    """Every step is counted once, and DeepSpeed's ranks have each stored their part."""
    trial = training(framework)
    paused = trial.run_until(
        "[rank=0] epoch 1,", lambda: trial.core_sdk("trial", "pause", "1"), trial.command(*arguments)
    )
    checkpoint = trial.answer("checkpoint", "list", "--trial", "1")[0]["storage_id"]

    resumed = trial.core_sdk("trial", "resume", "1")

    assert paused == PAUSED
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    accuracy(resumed.stdout)
    reports = trial.answer("trial", "metrics", "1", "--group", "validation")
    steps = [report["steps_completed"] for report in reports]
    assert steps == list(range(STEPS_PER_EPOCH, NUM_EPOCHS * STEPS_PER_EPOCH + 1, STEPS_PER_EPOCH))
    files = trial.answer("checkpoint", "describe", checkpoint)["resources"]
    shards = [name for name in files if "_rank_" in name and name.endswith("optim_states.pt")]
    assert len(shards) == (2 if framework == "deepspeed" else 0)


@pytest.mark.parametrize("framework", [pytest.param(name, marks=needs(name)) for name in ("horovod", "deepspeed")])
def test_frameworks_reach_the_same_accuracy(framework: str) -> None:
    """The example reaches the same accuracy under Horovod and DeepSpeed as under torchrun, within a tolerance."""
    expected = training("torch")
    other = training(framework)

    outputs = [each.run(each.command()).stdout for each in (expected, other)]

    accuracies = [accuracy(output) for output in outputs]
    assert accuracies[1] == pytest.approx(accuracies[0], abs=TOLERANCE)
