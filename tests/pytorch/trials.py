"""A trial that tests train, on a line through some points, and what stops it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from core_sdk import pytorch
from core_sdk.loop import _rng as rng

NUM_SAMPLES = 20
SEED = 17


class LineTrial(pytorch.PyTorchTrial):
    """A trial that records its samples and losses and a random number for each batch."""

    def __init__(self, context: pytorch.PyTorchTrialContext, *, batch_size: int = 8, **loader: Any) -> None:
        self.context = context
        self.batch_size = batch_size
        self.loader = loader
        self.callbacks: Mapping[str, pytorch.PyTorchCallback] = {}
        self.model = self.wrapped_model()
        self.optimizer = context.wrap_optimizer(self.make_optimizer())
        self.trained: list[tuple[int, int, list[float], float, float]] = []

    def wrapped_model(self) -> nn.Module:
        return self.context.wrap_model(self.make_model())

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.0001, momentum=0.9)

    def make_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.5), nn.Linear(4, 1))

    def build_training_data_loader(self) -> Any:
        return pytorch.DataLoader(dataset(), self.batch_size, shuffle=True, **self.loader)

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(dataset(), self.batch_size)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return dict(self.callbacks)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        loss = ((self.model(x) - y) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.trained.append((epoch_idx, batch_idx, x.flatten().tolist(), loss.item(), random.random()))
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"error": ((self.model(x) - y) ** 2).mean(), "mean_x": x.mean()}


class StopAfter(pytorch.PyTorchCallback):
    """Sends SIGTERM to this process after a batch."""

    def __init__(self, batch_idx: int) -> None:
        self.batch_idx = batch_idx

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        if batch_idx == self.batch_idx:
            os.kill(os.getpid(), signal.SIGTERM)


def fit(
    job: str,
    stop: pytorch.PyTorchCallback | None = None,
    kind: type[LineTrial] = LineTrial,
    *,
    window: int = 1,
    **arguments: Any,
) -> tuple[pytorch.FitResult, LineTrial]:
    """Begins or resumes the trial of a job, which takes three epochs of three batches."""
    with pytorch.init(job_id=job, aggregation_frequency=window) as context:
        fixed_seed(context)
        trial = kind(context)
        if stop is not None:
            trial.callbacks = {"stop": stop}
        return pytorch.Trainer(trial, context).fit(**{"max_length": pytorch.Epoch(3), **arguments}), trial


def fixed_seed(context: pytorch.PyTorchTrialContext) -> None:
    """Gives every trial of a test the same seed."""
    context.core_context.info.trial.trial_seed = SEED
    rng.seed_all(SEED)


def dataset() -> TensorDataset:
    x = torch.arange(float(NUM_SAMPLES)).unsqueeze(1)
    return TensorDataset(x, 2 * x + 1)
