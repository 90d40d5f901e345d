"""Trainers go back by a guard of the command line, as scripts do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core_sdk._ground.records import AttemptStarted
from core_sdk._home import Home
from core_sdk._home.journal import find_records
from core_sdk.client import Tracker

ON_WORKERS = """
import tempfile
from pathlib import Path
from core_sdk import train
from core_sdk.train import Checkpoint, RunConfig, ScalingConfig, TorchTrainer


def function(config):
    first, attempt = 1, 1
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            first = int((Path(directory) / "step").read_text()) + 1
            attempt = 2
    for step in range(first, 11):
        loss = float("nan") if step == 7 and attempt == 1 else 1.0
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "step").write_text(str(step))
            if step == 6:
                marked = Path(config["mark"])
                attempt = 2 if marked.exists() else 1
                marked.touch()
                loss = 1.0
            train.report({"loss": loss}, checkpoint=Checkpoint.from_directory(directory))


if __name__ == "__main__":
    trainer = TorchTrainer(
        function,
        train_loop_config={"mark": str(Path("mark").absolute())},
        scaling_config=ScalingConfig(num_workers=NUM_WORKERS),
        run_config=RunConfig(name="guarded"),
    )
    trainer.fit()
"""

TRIAL = """
import torch
from torch.utils.data import TensorDataset
from core_sdk import pytorch


class LineTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        x = torch.arange(80.0).unsqueeze(1) / 80
        return pytorch.DataLoader(TensorDataset(torch.arange(80), x, 2 * x + 1), batch_size=4, shuffle=True)

    def build_validation_data_loader(self):
        x = torch.linspace(-1, 1, 8).unsqueeze(1)
        return pytorch.DataLoader(TensorDataset(torch.arange(8), x, 2 * x + 1), batch_size=8)

    def train_batch(self, batch, epoch_idx, batch_idx):
        numbers, x, y = batch
        loss = ((self.model(x) - y) ** 2).mean()
        if (numbers == 17).any():
            loss = loss * float("nan")
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        numbers, x, y = batch
        return {"validation_loss": ((self.model(x) - y) ** 2).mean()}


if __name__ == "__main__":
    with pytorch.init(hparams={}) as context:
        trainer = pytorch.Trainer(LineTrial(context), context)
        trainer.fit(
            max_length=pytorch.Batch(19),
            checkpoint_period=pytorch.Batch(3),
            reporting_period=pytorch.Batch(1),
            validation_period=pytorch.Batch(19),
        )
"""


# The third pass makes the loss NaN, once.
BY_CREATORS = """
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
from core_sdk.sgd import PyTorchTrainer


def data_creator(config):
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    return TensorDataset(x, 2 * x + 1), TensorDataset(x[::8], 2 * x[::8] + 1)


class Loss(torch.nn.MSELoss):
    def forward(self, output, target):
        loss = super().forward(output, target)
        if Path("trouble").exists() and not Path("over").exists():
            Path("over").touch()
            loss = loss * float("nan")
        return loss


if __name__ == "__main__":
    with PyTorchTrainer(
        lambda config: torch.nn.Linear(1, 1),
        data_creator,
        lambda model, config: torch.optim.SGD(model.parameters(), lr=0.1),
        loss_creator=Loss,
        batch_size=8,
    ) as trainer:
        while trainer.epoch < 5:
            if trainer.epoch == 2:
                Path("trouble").touch()
            trainer.train()
"""


def run(
    directory: Path, source: str, guard_words: str = "loss not_finite action=go_back skip_batches=0"
) -> tuple[int, str]:
    (directory / "train.py").write_text(source)
    guard = ["--guard", guard_words]
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", *guard, "--", sys.executable, "train.py"]
    options = {"capture_output": True, "text": True, "timeout": 150}
    finished = subprocess.run(command, cwd=directory, env=dict(os.environ), **options)  # type: ignore[call-overload]
    return finished.returncode, finished.stdout + finished.stderr


def resumed_steps(home: Home) -> list[int]:
    folder = home.trial(1)
    starts = [next(find_records(folder.journal_path(number), ['"attempt"'])) for number in folder.attempts()]
    return [start.resumed_steps for start in starts if isinstance(start, AttemptStarted)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_function_on_workers_goes_back(tmp_path: Path, home: Home, num_workers: int) -> None:
    """The program itself begins the next attempt, from the newest checkpoint before the trouble."""
    status, output = run(tmp_path, ON_WORKERS.replace("NUM_WORKERS", str(num_workers)))

    trial = Tracker().get_trial(1)
    assert (status, trial.state.name) == (0, "COMPLETED"), output
    assert resumed_steps(home) == [0, 6], output
    assert [each.steps_completed for each in trial.iter_metrics()] == list(range(1, 11))


def test_a_trainer_goes_back_and_leaves_out_the_batches(tmp_path: Path, home: Home) -> None:
    """A batch that makes the loss NaN comes once in an epoch; the trainer goes on after it."""
    status, output = run(tmp_path, TRIAL)

    trial = Tracker().get_trial(1)
    assert (status, trial.state.name) == (0, "COMPLETED"), output
    assert trial.num_attempts == 2, output
    losses = [each.metrics["loss"] for each in trial.iter_metrics("training")]
    assert len(losses) == 19
    assert all(loss == loss for loss in losses)


def test_a_trainer_of_creators_goes_back(tmp_path: Path, home: Home) -> None:
    """A pass is a report of the trainer; it begins the passes since its newest checkpoint again."""
    status, output = run(tmp_path, BY_CREATORS, "train_loss not_finite action=go_back")

    trial = Tracker().get_trial(1)
    assert (status, trial.state.name, trial.num_attempts) == (0, "COMPLETED", 2), output
    losses = [each.metrics["train_loss"] for each in trial.iter_metrics("training")]
    assert len(losses) == 5
    assert all(loss == loss for loss in losses)
