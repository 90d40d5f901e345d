"""A Trial that reports every batch with the samples in it, and waits at a batch of the test's choice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from processes import wait_for

from core_sdk._execution.experiments.submission import submit
from core_sdk._home import Home
from core_sdk.client import Tracker
from core_sdk.errors import NotFoundError

BATCHES_PER_EPOCH = 5
NUM_EPOCHS = 4
NUM_BATCHES = BATCHES_PER_EPOCH * NUM_EPOCHS

MODEL_DEF = """
import os
import time
from pathlib import Path

import torch
from torch import nn

from core_sdk import pytorch

HELD = Path({directory!r})
torch.set_num_threads(1)


class MyTrial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        data = torch.utils.data.TensorDataset(torch.arange(40.0).unsqueeze(1))
        return pytorch.DataLoader(data, self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return self.build_training_data_loader()

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.wait(batch_idx)
        (ids,) = batch
        loss = (self.model(ids / 40) - ids / 20).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {{"loss": loss, "ids": ids.sum(), "squares": ids.square().sum(), "draw": torch.rand(())}}

    def evaluate_batch(self, batch):
        error = (self.model(batch[0] / 40) - batch[0] / 20).square().mean()
        return {{"validation_loss": error + self.context.get_hparams().get("handicap", 0.0)}}

    def wait(self, batch_idx):
        hold = HELD / "hold"
        if self.context.distributed.rank == 0 and hold.exists() and hold.read_text() == str(batch_idx):
            (HELD / "new").write_text(str(os.getpid()))
            (HELD / "new").rename(HELD / "here")
            while hold.exists():
                time.sleep(0.01)
        time.sleep(self.context.get_hparams().get("batch_s", 0.0))


if __name__ == "__main__":
    with pytorch.init(hparams={{"global_batch_size": 8}}, name="held") as train_context:
        pytorch.Trainer(MyTrial(train_context), train_context).fit(
            max_length=pytorch.Epoch({num_epochs}),
            validation_period=pytorch.Batch(7),
            checkpoint_period=pytorch.Batch(3),
            reporting_period=pytorch.Batch(1),
            step_zero_validation=True,
        )
"""

CONFIG = f"""
name: held
entrypoint: model_def:MyTrial
hyperparameters: {{global_batch_size: 8}}
searcher: {{name: single, metric: validation_loss, max_length: {{epochs: {NUM_EPOCHS}}}}}
min_validation_period: {{batches: 7}}
min_checkpoint_period: {{batches: 3}}
scheduling_unit: 1
reproducibility: {{experiment_seed: 7}}
max_restarts: 1
"""

Reports = list[tuple[int | None, dict[str, Any]]]


class Stage:
    """A directory with a Trial whose trainings can be held at a batch."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.code = directory / "code"
        self.code.mkdir()
        text = MODEL_DEF.format(directory=str(directory), num_epochs=NUM_EPOCHS)
        (self.code / "model_def.py").write_text(text)

    def submit(self, home: Home, config: str = CONFIG) -> int:
        """Submits an experiment and returns its number."""
        return submit(Home.create(home.root), config, source="held.yaml", model_dir=self.code).experiment_id

    def hold_at(self, batch_index: int) -> None:
        (self.directory / "here").unlink(missing_ok=True)
        (self.directory / "hold").write_text(str(batch_index))

    def await_held(self) -> int:
        """Waits until the chief is held at its batch and returns its process id."""
        here = self.directory / "here"
        wait_for(here.exists)
        return int(here.read_text())

    def go_on(self) -> None:
        (self.directory / "hold").unlink()


def reports(trial_id: int, group: str = "training") -> Reports:
    try:
        trial = Tracker().get_trial(trial_id)
    except NotFoundError:
        return []
    return [(report.steps_completed, report.metrics) for report in trial.iter_metrics(group)]


def copy_of(home: Home, place: Path) -> Home:
    """Copies the home to another place and returns the copy."""
    shutil.copytree(home.root, place, symlinks=True)
    return Home(place)


def use(home: Home) -> None:
    os.environ["CORE_SDK_HOME"] = str(home.root)
