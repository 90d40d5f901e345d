"""What `Trainer.fit` costs per batch, beside the same loop written by hand.

`Linear(1, 1)`, batches of 4, one thread, a report every 100 batches. The budget is 15 µs a batch over the loop by hand.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import TensorDataset

from core_sdk import core, pytorch

NUM_BATCHES = 2_000
BATCH_SIZE = 4
REPORT_EVERY = 100
NUM_ROUNDS = 15


def dataset() -> TensorDataset:
    x = torch.arange(float(NUM_BATCHES * BATCH_SIZE)).unsqueeze(1) / (NUM_BATCHES * BATCH_SIZE)
    return TensorDataset(x, 2 * x + 1)


def by_hand() -> float:
    """Seconds of the loop that one would write oneself, with the same reports."""
    with core.init() as core_context:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = TorchDataLoader(dataset(), BATCH_SIZE, shuffle=True)
        losses: list[torch.Tensor] = []
        begin = time.perf_counter()
        for index, (x, y) in enumerate(loader):
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if (index + 1) % REPORT_EVERY == 0:
                mean = torch.stack(losses).mean().item()
                core_context.train.report_training_metrics(index + 1, {"loss": mean})
                losses.clear()
        return time.perf_counter() - begin


class Trial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(dataset(), BATCH_SIZE, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(torch.zeros(1, 1), torch.zeros(1, 1)))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = ((self.model(x) - y) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": 0.0}

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"stopwatch": Stopwatch()}


class Stopwatch(pytorch.PyTorchCallback):
    """Measures from the first batch to the last validation, as the loop by hand does."""

    def on_training_start(self) -> None:
        self.begin = time.perf_counter()

    def on_validation_start(self) -> None:
        _seconds.append(time.perf_counter() - self.begin)


_seconds: list[float] = []


def with_fit() -> float:
    with pytorch.init() as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Epoch(1), reporting_period=pytorch.Batch(REPORT_EVERY), progress_bar=False
        )
    return _seconds.pop()


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        os.environ["CORE_SDK_HOME"] = home
        ways: dict[str, Callable[[], float]] = {"by hand": by_hand, "Trainer.fit": with_fit}
        rounds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(NUM_ROUNDS):
            for name, measure in ways.items():
                rounds[name].append(measure() / NUM_BATCHES * 1e6)
    baseline = statistics.median(rounds["by hand"])
    for name, figures in rounds.items():
        median = statistics.median(figures)
        print(
            f"{name:12} {median:7.1f} µs a batch ({min(figures):.1f} to {max(figures):.1f}), {median - baseline:+.1f}"
        )


if __name__ == "__main__":
    main()
