"""The examples of Trials learn what they promise, and a pause in the middle leaves no trace in their numbers."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from execution.master.searches import await_end
from masters import running_master
from processes import wait_for
from pytorch.trials import StopAfter

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import Want
from core_sdk._execution.experiments.submission import submit
from core_sdk._home import Home
from core_sdk.client import Tracker
from core_sdk.loop import _rng as rng
from core_sdk.pytorch import Epoch, Trainer, init

# They train, with PyTorch, to an accuracy.
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CORE_SDK = Path(sys.executable).with_name("core-sdk")
SEED = "reproducibility.experiment_seed=1"

Validations = list[tuple[int | None, dict[str, Any]]]


@pytest.fixture(autouse=True)
def this_python() -> None:
    """`python3` is the one of the tests."""
    os.environ["PATH"] = f"{CORE_SDK.parent}{os.pathsep}{os.environ['PATH']}"


def run(*command: object) -> str:
    """Runs the command as a trial; returns its output."""
    result = subprocess.run(
        [str(CORE_SDK), "run", "--", *map(str, command)], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def assert_as_promised(output: str) -> None:
    """The last line states what was reached and what the example promises."""
    told = re.search(r"(?:accuracy|distance) (\S+) .*\(expected: (\S+) or (more|less)\)\n\Z", output)
    assert told, output
    reached, expected = float(told[1]), float(told[2])
    assert reached >= expected if told[3] == "more" else reached <= expected


def validations(experiment_id: int) -> Validations:
    """Returns the validations of the experiment's only trial."""
    trials = Tracker().get_experiment(experiment_id).get_trials()
    return [(each.steps_completed, each.metrics) for trial in trials for each in trial.iter_metrics("validation")]


def test_the_trial_reaches_its_accuracy() -> None:
    """The example of a Trial reaches its accuracy as a plain script."""
    assert_as_promised(run(sys.executable, EXAMPLES / "8_trial.py"))


def test_the_trial_reaches_its_accuracy_on_two_ranks() -> None:
    """On two ranks, the example reaches its accuracy, and both ranks print the same one."""
    launcher = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--"]

    output = run(*launcher, sys.executable, EXAMPLES / "8_trial.py")

    assert_as_promised(output)
    assert len(set(re.findall(r"accuracy (\S+) on", output))) == 1


def test_the_transfer_learns_other_digits_from_few_images(home: Home) -> None:
    """From a checkpoint of the digits 0 to 4, the transfer example learns the other digits, also in an experiment."""
    run(sys.executable, EXAMPLES / "8_trial.py", "--epochs", 10, "--classes", 0, 1, 2, 3, 4)
    pretrained = Tracker().get_trial(1).list_checkpoints()[0].uuid

    assert_as_promised(run(sys.executable, EXAMPLES / "8_transfer.py", pretrained))

    config = (EXAMPLES / "8_transfer.yaml").read_text()
    with running_master(Home.create(home.root)):
        overrides = [f"hyperparameters.pretrained={pretrained}"]
        experiment_id = submit(home, config, source="8_transfer", overrides=overrides, model_dir=EXAMPLES).experiment_id
        assert await_end(home, experiment_id).state == "COMPLETED"
    # Its seed is another one in each experiment.
    assert validations(experiment_id)[-1][1]["accuracy"] >= 0.75


def test_a_stopped_transfer_goes_on_as_if_undisturbed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transfer example resumes exactly, whether it is stopped with frozen or with tuned layers."""
    run(sys.executable, EXAMPLES / "8_trial.py", "--epochs", 1, "--classes", 0, 1, 2, 3, 4)
    hparams = {
        "pretrained": Tracker().get_trial(1).list_checkpoints()[0].uuid,
        "global_batch_size": 20,
        "frozen_epochs": 10,
    }
    monkeypatch.syspath_prepend(str(EXAMPLES))
    transfer = importlib.import_module("8_transfer")

    def train(job: str, stop_after: int = -1) -> str:
        with init(hparams=hparams, job_id=job) as context:
            context.core_context.info.trial.trial_seed = 1
            rng.seed_all(1)
            trial = transfer.TransferTrial(context)
            trial.build_callbacks = lambda: {"stop": StopAfter(stop_after)}
            return Trainer(trial, context).fit(max_length=Epoch(20), validation_period=Epoch(1)).reason

    reasons = [train("whole"), train("stopped", 7), train("stopped", 25), train("stopped")]

    assert reasons == ["completed", "preempted", "preempted", "completed"]
    whole, stopped = (list(Tracker().get_trial(number).iter_metrics("validation")) for number in (2, 3))
    assert [report.metrics for report in stopped] == [report.metrics for report in whole]
    assert len(whole) == 20


def test_the_gan_draws_digits() -> None:
    """The images of the GAN example are nearer to real digits than noise is."""
    assert_as_promised(run(sys.executable, EXAMPLES / "8_gan.py"))


@pytest.mark.parametrize("name", ["8_trial", "8_gan"])
def test_a_paused_example_goes_on_as_if_undisturbed(home: Home, name: str) -> None:
    """With the same seed, a paused and resumed example has the same validations as an undisturbed one."""
    config = (EXAMPLES / f"{name}.yaml").read_text()

    def create() -> int:
        submitted = submit(home, config, source=name, overrides=[SEED], model_dir=EXAMPLES)
        return submitted.experiment_id

    with running_master(Home.create(home.root)):
        paused, undisturbed = create(), create()
        wait_for(lambda: len(validations(paused)) >= 2)
        call(home.root, Want(experiment_id=paused, state="PAUSED", by="a test"))
        await_end(home, undisturbed)
        num_before = len(validations(paused))
        call(home.root, Want(experiment_id=paused, state="ACTIVE", by="a test"))
        await_end(home, paused)

    assert 2 <= num_before < len(validations(undisturbed))
    assert validations(paused) == validations(undisturbed)
