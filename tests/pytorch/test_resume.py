"""A training that was stopped goes on as if it had never been stopped."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial

from core_sdk.pytorch import Batch, Epoch, FitResult, PyTorchCallback, PyTorchTrialContext, Trainer, init

SEED = 17


class StopAfter(PyTorchCallback):
    """Sends this process a SIGTERM after a batch."""

    def __init__(self, batch_idx: int) -> None:
        self.batch_idx = batch_idx

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        if batch_idx == self.batch_idx:
            os.kill(os.getpid(), signal.SIGTERM)


class StopInValidation(LineTrial):
    """Sends this process a SIGTERM in a batch of a validation."""

    stops_at: tuple[int, int] | None = None

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if self.stops_at == (len(self.trained), batch_idx):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().evaluate_batch(batch, batch_idx)


def fixed_seed(context: PyTorchTrialContext) -> None:
    """Gives every trial of a test the same seed."""
    context._core.info.trial.trial_seed = SEED
    random.seed(SEED)
    torch.manual_seed(SEED)


def run(job: str, stop: PyTorchCallback | None = None, **arguments: Any) -> tuple[FitResult, LineTrial]:
    with init(job_id=job) as context:
        fixed_seed(context)
        trial = LineTrial(context)
        if stop is not None:
            trial.callbacks = {"stop": stop}
        return Trainer(trial, context).fit(max_length=Epoch(3), validation_period=Batch(2), **arguments), trial


@pytest.mark.parametrize("stopped_after", [0, 1, 2, 3, 7])
def test_a_stop_after_any_batch_changes_nothing(stopped_after: int) -> None:
    """Neither samples nor losses nor random numbers nor validations; the third batch ends an epoch."""
    whole_result, whole = run("whole")

    first_result, first = run("stopped", StopAfter(stopped_after))
    second_result, second = run("stopped")

    assert first_result.reason == "preempted"
    assert len(first.trained) == first_result.steps_completed == stopped_after + 1
    assert first.trained + second.trained == whole.trained
    assert second_result.metrics == whole_result.metrics
    assert second_result.reason == "completed"
