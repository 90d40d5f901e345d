"""What a hook asks before the first batch of a resumed training is answered as if there had been no stop."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from pytorch.trials import LineTrial, StopAfter, fixed_seed
from questions import answers
from torch.optim.lr_scheduler import LambdaLR

from core_sdk.pytorch import (
    Batch,
    Epoch,
    FitResult,
    LRScheduler,
    PyTorchCallback,
    PyTorchTrialContext,
    Trainer,
    init,
)

Answers = dict[str, object]


class Asks(PyTorchCallback):
    """Asks everything in each hook that is called around a validation, or before the first batch."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.answers: dict[str, list[Answers]] = defaultdict(list)

    def on_training_start(self) -> None:
        self.ask("on_training_start")

    def on_validation_start(self) -> None:
        self.ask("on_validation_start")

    def on_validation_epoch_start(self) -> None:
        self.ask("on_validation_epoch_start")

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        self.ask("on_validation_epoch_end")

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.ask("on_validation_end")

    def ask(self, where: str) -> None:
        if self.context.core_context.info.trial.attempt > 1 or where != "on_training_start":
            rates = [each.get_last_lr() for each in self.context.lr_schedulers]
            self.answers[where].append({**answers(self.context), "rates": rates})


class AskingTrial(LineTrial):
    """A trial that asks its context for everything and has a schedule."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.batches_before = context.get_initial_batch()
        super().__init__(context)
        schedule = LambdaLR(self.optimizer, lambda step: 1 / (1 + step))
        context.wrap_lr_scheduler(schedule, LRScheduler.StepMode.STEP_EVERY_BATCH)
        self.asks = Asks(context)

    def build_training_data_loader(self) -> Any:
        if self.context.core_context.info.trial.attempt > 1:
            self.position_of_loader = self.context.current_train_batch()
        return super().build_training_data_loader()

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.asks.ask("evaluate_batch")
        return super().evaluate_batch(batch, batch_idx)


def run(job: str, period: int, stop_after: int | None = None) -> tuple[FitResult, AskingTrial]:
    """Begins or resumes the trial of a job."""
    with init(job_id=job, hparams={"global_batch_size": 8}, exp_conf={"data": {}}) as context:
        fixed_seed(context)
        trial = AskingTrial(context)
        trial.callbacks = {"asks": trial.asks, **({} if stop_after is None else {"stop": StopAfter(stop_after)})}
        fit = Trainer(trial, context).fit
        return fit(max_length=Epoch(2), validation_period=Batch(period)), trial


@pytest.mark.parametrize("batches", [2, 3, 4])
def test_a_resumed_training_knows_its_position_before_its_first_batch(batches: int) -> None:
    """A resumed training knows its position before its first batch, wherever it was stopped."""
    _, whole = run("whole", batches)
    first, _ = run("stopped", batches, stop_after=batches - 1)
    second, resumed = run("stopped", batches)

    assert (first.reason, first.steps_completed, second.reason) == ("preempted", batches, "completed")
    assert resumed.batches_before == batches
    assert resumed.position_of_loader == batches - 1
    expected = {**whole.asks.answers["on_validation_end"][0], "get_initial_batch": batches, "get_trial_id": 2}
    assert {"current_train_batch", "current_train_epoch", "is_epoch_start", "is_epoch_end"} <= expected.keys()
    for where, asked in resumed.asks.answers.items():
        assert asked[0] == expected, where
    assert resumed.asks.answers.keys() - whole.asks.answers.keys() == {"on_training_start"}
