"""A training with all that a resume could get wrong. It ends where a test wants, and writes down what it has done."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from torch import nn
from torch.utils.data import Dataset

from core_sdk.loop import _rng as rng
from core_sdk.pytorch import (
    Batch,
    DataLoader,
    Epoch,
    FitResult,
    LRScheduler,
    PyTorchCallback,
    PyTorchTrial,
    PyTorchTrialContext,
    Trainer,
    init,
)

# The last batch of an epoch has one sample, fewer than there are ranks.
NUM_SAMPLES = 61
GLOBAL_BATCH_SIZE = 12
NUM_EPOCHS = 2
NUM_BATCHES = 12
VALIDATED_AT = (3, 6, 9, 12)
SAVED_AT = (2, 4, 6, 8, 10, 12)
SEED = 23

Place = Literal["batch", "validation", "checkpoint"]


class LostPowerError(Exception):
    """Ends a training at once, as far as that is possible inside a process."""


@dataclass(frozen=True)
class End:
    """Where a training ends before its time: in the batch of this index, or in the validation or checkpoint after it.

    `how` is a signal that the process sends itself, or an exception that it raises.
    """

    place: Place
    batch_idx: int
    how: Literal["SIGTERM", "SIGKILL", "exception"]

    def __str__(self) -> str:
        return f"{self.how} in {self.place} {self.batch_idx}"

    @classmethod
    def read(cls, text: str) -> End | None:
        if not text:
            return None
        how, _, place, batch_idx = text.split()
        return cls(place, int(batch_idx), how)  # type: ignore[arg-type]

    def happen(self) -> None:
        if self.how == "exception":
            raise LostPowerError
        os.kill(os.getpid(), signal.Signals[self.how])


class Augmented(Dataset[Any]):
    """Samples that each generator disturbs at random, whenever they are read."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + float(torch.rand(())) + float(numpy.random.random())
        return torch.tensor(index), torch.tensor([index / NUM_SAMPLES, noise])


class ExactTrial(PyTorchTrial):
    """Shuffled and augmented data, dropout, accumulated gradients, momentum, a scheduler and a scaler."""

    def __init__(self, context: PyTorchTrialContext, folder: Path, num_workers: int, end: End | None) -> None:
        self.context = context
        self.num_workers = num_workers
        self.end = end
        self.batch_idx = -1
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3))
        self.model = context.wrap_model(nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1)))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.optimizer = context.wrap_optimizer(optimizer)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        context.wrap_lr_scheduler(scheduler, LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP)
        self._notes = os.open(folder / f"rank {context.distributed.rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def build_training_data_loader(self) -> DataLoader:
        return self._loader(shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return self._loader(shuffle=False)

    def _loader(self, *, shuffle: bool) -> DataLoader:
        batch_size = GLOBAL_BATCH_SIZE // self.context.distributed.size
        return DataLoader(Augmented(), batch_size, shuffle=shuffle, num_workers=self.num_workers)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"end": EndInCheckpoint(self)}

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.batch_idx = batch_idx
        ids, x = batch
        loss = ((self.model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        if (batch_idx + 1) % 2 == 0:
            self.scaler.update()
        self._note(
            batch=batch_idx,
            epoch=epoch_idx,
            ids=ids.tolist(),
            x=x.tolist(),
            loss=loss.item(),
            rate=self.optimizer.param_groups[0]["lr"],
            scale=self.scaler.get_scale(),
            drawn=[random.random(), float(torch.rand(())), float(numpy.random.random())],
        )
        self.reach("batch")
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 1:
            self.reach("validation")
        ids, x = batch
        drawn = random.random() + float(torch.rand(())) + float(numpy.random.random())
        return {
            "error": ((self.model(x) - x.sum(1, keepdim=True)) ** 2).mean(),
            "id": ids.float().mean(),
            "drawn": drawn,
        }

    def reach(self, place: Place) -> None:
        """Ends the training where it is to end, on one rank: the last one, or the chief, which stores checkpoints."""
        end, ranks = self.end, self.context.distributed
        ending_rank = 0 if place == "checkpoint" else ranks.size - 1
        if end is not None and (end.place, end.batch_idx) == (place, self.batch_idx) and ranks.rank == ending_rank:
            self.end = None
            end.happen()

    def note_result(self, result: FitResult) -> None:
        weights = [parameter.flatten().tolist() for parameter in self.model.parameters()]
        self._note(batch="result", metrics=result.metrics, weights=weights, steps=result.steps_completed)

    def _note(self, **values: Any) -> None:
        os.write(self._notes, (json.dumps(values) + "\n").encode())


class EndInCheckpoint(PyTorchCallback):
    def __init__(self, trial: ExactTrial) -> None:
        self._trial = trial

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self._trial.reach("checkpoint")


def train(folder: str, num_workers: str, end: str = "") -> None:
    """Begins the training of a folder, or goes on with it; all ranks call it."""
    directory = Path(folder)
    with init(job_id=directory.name, aggregation_frequency=2, enable_tensorboard_logging=False) as context:
        context.core_context.info.trial.trial_seed = SEED
        rng.seed_all(SEED)
        trial = ExactTrial(context, directory, int(num_workers), End.read(end))
        result = Trainer(trial, context).fit(
            max_length=Epoch(NUM_EPOCHS),
            validation_period=Batch(VALIDATED_AT[0]),
            checkpoint_period=Batch(SAVED_AT[0]),
            checkpoint_policy="none",
            reporting_period=Batch(5),
        )
        if result.reason == "completed":
            trial.note_result(result)


def samples(folder: Path) -> dict[int, dict[int, list[float]]]:
    """Returns the samples of each global batch, after augmentation."""
    found: dict[int, dict[int, list[float]]] = defaultdict(dict)
    for file in folder.glob("rank *"):
        for note in map(json.loads, file.read_text().splitlines()):
            if note["batch"] != "result":
                found[note["batch"]].update(zip(note["ids"], note["x"], strict=True))
    return found


def notes(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Returns the notes of all attempts by rank and batch; a batch that was trained differently has several."""
    found: dict[str, dict[str, set[str]]] = {}
    for file in sorted(folder.glob("rank *")):
        found[file.name] = defaultdict(set)
        for line in file.read_text().splitlines():
            found[file.name][str(json.loads(line)["batch"])].add(line)
    return found
