"""One of the ways of `fit.py`: trains whenever it reads a line, and prints how many microseconds a batch took.

python benchmarks/_fit_contender.py WAY perf_counter|process_time
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_BATCHES = 2_000
NUM_WARM_BATCHES = 200
BATCH_SIZE = 4
REPORT_EVERY = 100
LEARNING_RATE = 0.01


class Stopwatch:
    """Measures the batches after the first ones, and nothing of the start and the end of a training."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._num_batches = 0
        self._begin = 0.0
        self.microseconds_per_batch = 0.0

    def end_batch(self) -> None:
        self._num_batches += 1
        if self._num_batches == NUM_WARM_BATCHES:
            self._begin = self._clock()
        elif self._num_batches == NUM_BATCHES:
            seconds = self._clock() - self._begin
            self.microseconds_per_batch = seconds / (NUM_BATCHES - NUM_WARM_BATCHES) * 1e6


class Reports:
    """Means of losses, as lines of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._losses: list[torch.Tensor] = []

    def add(self, number: int, loss: torch.Tensor) -> None:
        self._losses.append(loss.detach())
        if number % REPORT_EVERY == 0:
            line = json.dumps({"batch": number, "loss": torch.stack(self._losses).mean().item()})
            self._losses.clear()
            with self._file.open("a") as file:
                file.write(line + "\n")


def dataset() -> TensorDataset:
    x = torch.arange(float(NUM_BATCHES * BATCH_SIZE)).unsqueeze(1) / (NUM_BATCHES * BATCH_SIZE)
    return TensorDataset(x, 2 * x + 1)


def batches() -> DataLoader[Any]:
    return DataLoader(dataset(), BATCH_SIZE, shuffle=True)


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(1, 1)
    return model, torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


def by_hand(stopwatch: Stopwatch, folder: Path) -> None:
    model, optimizer = model_and_optimizer()
    reports = Reports(folder / "reports")
    for number, (x, y) in enumerate(batches(), 1):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        reports.add(number, loss)
        stopwatch.end_batch()


def accelerate(stopwatch: Stopwatch, folder: Path) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(*model_and_optimizer(), batches())
    reports = Reports(folder / "reports")
    for number, (x, y) in enumerate(loader, 1):
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        reports.add(number, loss)
        stopwatch.end_batch()


def fabric(stopwatch: Stopwatch, folder: Path) -> None:
    from lightning.fabric import Fabric

    lightning_fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = lightning_fabric.setup(*model_and_optimizer())
    reports = Reports(folder / "reports")
    for number, (x, y) in enumerate(lightning_fabric.setup_dataloaders(batches()), 1):
        loss = ((model(x) - y) ** 2).mean()
        lightning_fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        reports.add(number, loss)
        stopwatch.end_batch()


def lightning(stopwatch: Stopwatch, folder: Path) -> None:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.optimizer = model_and_optimizer()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            loss: torch.Tensor = ((self.model(x) - y) ** 2).mean()
            self.log("loss", loss)
            return loss

        def on_train_batch_end(self, *_: object) -> None:
            stopwatch.end_batch()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.optimizer

    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=CSVLogger(folder),
        log_every_n_steps=REPORT_EVERY,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), batches())


def core_sdk(stopwatch: Stopwatch, folder: Path) -> None:
    _fit_trial("core_sdk.pytorch", stopwatch)


def determined(stopwatch: Stopwatch, folder: Path) -> None:
    _fit_trial("determined.pytorch", stopwatch)


def _fit_trial(package: str, stopwatch: Stopwatch) -> None:
    """One script serves both: only the import differs."""
    pytorch: Any = importlib.import_module(package)

    class Trial(pytorch.PyTorchTrial):  # type: ignore[misc]
        def __init__(self, context: Any) -> None:
            self.context = context
            model, optimizer = model_and_optimizer()
            self.model, self.optimizer = context.wrap_model(model), context.wrap_optimizer(optimizer)

        def build_training_data_loader(self) -> Any:
            return pytorch.DataLoader(dataset(), BATCH_SIZE, shuffle=True)

        def build_validation_data_loader(self) -> Any:
            return pytorch.DataLoader(TensorDataset(torch.zeros(1, 1), torch.zeros(1, 1)), 1)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            x, y = batch
            loss = ((self.model(x) - y) ** 2).mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            stopwatch.end_batch()
            return {"loss": loss}

        def evaluate_batch(self, batch: Any) -> dict[str, Any]:
            return {"error": 0.0}

    with pytorch.init(enable_tensorboard_logging=False) as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Batch(NUM_BATCHES),
            reporting_period=pytorch.Batch(REPORT_EVERY),
            checkpoint_policy="none",
        )


WAYS: dict[str, Callable[[Stopwatch, Path], None]] = {
    way.__name__: way for way in (by_hand, core_sdk, lightning, fabric, accelerate, determined)
}


def main() -> None:
    torch.set_num_threads(1)
    _, way, clock = sys.argv
    # What the libraries print does not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for _ in sys.stdin:
        stopwatch = Stopwatch(getattr(time, clock))
        with tempfile.TemporaryDirectory() as folder:
            WAYS[way](stopwatch, Path(folder))
        print(stopwatch.microseconds_per_batch, file=answers, flush=True)


if __name__ == "__main__":
    main()
