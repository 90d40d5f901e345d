"""Real Lightning, Transformers and Accelerate with their callbacks: stopped, killed and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from frameworks.environments import FrameworkEnvironment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIBRARIES = ["lightning", "transformers", "accelerate"]
CORE_SDK = Path(sys.executable).with_name("core-sdk")
STEPS_PER_EPOCH = {1: 45, 2: 23}
NUM_EPOCHS = 16

TIMEOUT_S = 300
# Each test starts six to eight processes that import torch.
pytestmark = pytest.mark.timeout(2 * TIMEOUT_S)

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""


@dataclass(frozen=True)
class Training:
    """An example as trial 1."""

    environment: FrameworkEnvironment
    library: str
    num_ranks: int
    directory: Path

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(CORE_SDK), "run", "--", *self.command(NUM_EPOCHS)],
            cwd=self.directory,
            env=self.variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def command(self, num_epochs: int) -> list[str]:
        launcher = ["python", "-m", "launch.torch_distributed", f"--nproc-per-node={self.num_ranks}", "--"]
        return [*launcher, "python", str(self.script), f"--epochs={num_epochs}"]

    @property
    def script(self) -> Path:
        return EXAMPLES / f"7_{self.library}.py"

    @property
    def variables(self) -> dict[str, str]:
        return {**os.environ, **self.environment.variables()}

    def core_sdk(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(CORE_SDK), *arguments],
            cwd=self.directory,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def answer(self, *arguments: str) -> Any:
        return json.loads(self.core_sdk(*arguments, "--json").stdout)

    def ranks(self) -> list[psutil.Process]:
        """Returns the Python processes that train, in the order of their ranks."""
        found = []
        for each in psutil.process_iter(["cmdline"]):
            if str(self.script) in (each.info["cmdline"] or [])[:3]:
                with contextlib.suppress(psutil.Error):  # it has ended, or is somebody else's
                    variables = each.environ()
                    if variables.get("CORE_SDK_HOME") == os.environ["CORE_SDK_HOME"] and "RANK" in variables:
                        found.append((int(variables["RANK"]), each.pid, each))
        return [each for _, _, each in sorted(found)]

    def wait_for_a_checkpoint(self, process: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + TIMEOUT_S
        while not any(Path(self.variables["CORE_SDK_HOME"]).glob("checkpoints/*-*")):
            assert process.poll() is None, "the training ended before it stored a checkpoint"
            assert time.monotonic() < give_up, "the training stores no checkpoint"
            time.sleep(0.1)


@pytest.fixture(params=LIBRARIES)
def start(request: pytest.FixtureRequest, callbacks: FrameworkEnvironment, tmp_path: Path) -> Callable[[int], Training]:
    return lambda num_ranks: Training(callbacks, request.param, num_ranks, tmp_path)


def test_a_paused_training_on_two_ranks_goes_on_to_its_end(start: Callable[[int], Training]) -> None:
    """When a training is paused, both ranks store at the same step; its resume reports each validation once."""
    training = start(2)
    process = training.start()
    training.wait_for_a_checkpoint(process)
    training.core_sdk("trial", "pause", "1")
    paused = process.wait(TIMEOUT_S)
    (before,) = training.answer("trial", "list")
    stored = max(each["steps_completed"] for each in training.answer("checkpoint", "list", "--trial", "1"))

    resumed = training.core_sdk("trial", "resume", "1")

    assert (paused, before["state"]) == (PAUSED, "PAUSED")
    assert before["steps_completed"] <= stored
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert_is_complete(training)


def test_a_killed_training_goes_on_from_its_newest_checkpoint(start: Callable[[int], Training]) -> None:
    """A killed training resumes from its newest checkpoint, and repeated reports are shown once."""
    training = start(1)
    process = training.start()
    training.wait_for_a_checkpoint(process)
    training.ranks()[0].kill()
    process.wait(TIMEOUT_S)

    resumed = training.core_sdk("trial", "resume", "1")

    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert_is_complete(training)


def test_a_signal_to_one_rank_stops_both(start: Callable[[int], Training]) -> None:
    """SIGTERM to one rank stops both ranks with a checkpoint, whatever the library does on SIGTERM."""
    training = start(2)
    process = training.start()
    training.wait_for_a_checkpoint(process)

    training.ranks()[1].send_signal(signal.SIGTERM)

    assert process.wait(TIMEOUT_S) == PAUSED
    assert training.answer("trial", "list")[0]["state"] == "PAUSED"


ALONE = {
    "lightning": """\
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from core_sdk.integrations.lightning import CoreSDKCallback

def train(core_context):
    Trainer(accelerator="cpu", devices=1, callbacks=[CoreSDKCallback(core_context)]).fit(BoringModel())
""",
    "transformers": """\
import torch
from transformers import Trainer, TrainingArguments
from core_sdk.integrations.transformers import CoreSDKCallback

def train(core_context):
    arguments = TrainingArguments("files", report_to=[])
    data = [{"input": torch.ones(1)}]
    Trainer(torch.nn.Linear(1, 1), arguments, train_dataset=data, callbacks=[CoreSDKCallback(core_context)]).train()
""",
    "accelerate": """\
from accelerate import Accelerator
from core_sdk.integrations.accelerate import CoreSDKTracker

def train(core_context):
    Accelerator(log_with=CoreSDKTracker(core_context)).init_trackers("digits")
""",
}
_ON_ALL_RANKS = """
from core_sdk import core

with core.init(distributed=core.DistributedContext.from_torch_distributed()) as core_context:
    train(core_context)
"""


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("lightning", "the Trainer has 1 ranks, and the Context 2: pass `devices=`"),
        ("transformers", "the world size of the Trainer is 1, and that of the Context 2: ranks would train alone"),
        ("accelerate", "the world size of the Accelerator is 1, and that of the Context 2: ranks would train alone"),
    ],
    ids=LIBRARIES,
)
def test_a_trainer_that_would_train_alone_on_each_rank_is_refused(
    callbacks: FrameworkEnvironment, tmp_path: Path, library: str, message: str
) -> None:
    """Lightning takes `devices=1` for one rank, and Accelerate a CPU that it was not told of, however many started."""
    (tmp_path / "train.py").write_text(ALONE[library] + _ON_ALL_RANKS)
    launcher = [str(callbacks.python), "-m", "launch.torch_distributed", "--nproc-per-node=2", "--"]

    done = subprocess.run(
        [*launcher, "python", "train.py"],
        cwd=tmp_path,
        env={**os.environ, **callbacks.variables(), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 1
    assert f"ValueError: {message}" in done.stderr


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_library_is_named_with_the_command_that_installs_it(library: str) -> None:
    """If a library is missing, the import error has the command that installs it."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys(['{library}', 'pytorch_lightning']))"

    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}; import core_sdk.integrations.{library}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 1
    assert f'pip install "{library}' in done.stderr


def test_a_training_with_accelerate_goes_on_exactly(callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """After a stop within an epoch, losses, accuracies and the last checkpoint are the same."""
    training = Training(callbacks, "accelerate", 1, tmp_path)

    checked = training.core_sdk("check-resume", "--at", "20", "--", *training.command(num_epochs=2))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_killed_training_with_lightning_goes_on_exactly(callbacks: FrameworkEnvironment, tmp_path: Path) -> None:
    """After a kill within an epoch, losses and the last checkpoint are those of an undisturbed training."""
    training = Training(callbacks, "lightning", 1, tmp_path)

    checked = training.core_sdk("check-resume", "--at", "60", "--how", "kill", "--", *training.command(num_epochs=2))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def assert_is_complete(training: Training) -> None:
    (trial,) = training.answer("trial", "list")
    steps_per_epoch = STEPS_PER_EPOCH[training.num_ranks]
    validations = training.answer("trial", "metrics", "1", "--group", "validation")
    losses = training.answer("trial", "metrics", "1", "--group", "training")

    assert (trial["state"], trial["steps_completed"], trial["progress"]) == (
        "COMPLETED",
        NUM_EPOCHS * steps_per_epoch,
        1,
    )
    steps = [report["steps_completed"] for report in validations]
    assert steps == list(range(steps_per_epoch, NUM_EPOCHS * steps_per_epoch + 1, steps_per_epoch))
    assert validations[-1]["metrics"]["accuracy"] > validations[0]["metrics"]["accuracy"] > 0
    assert all("loss" in report["metrics"] or "train_loss" in report["metrics"] for report in losses)
