"""Gradients that no step has used yet survive a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.ranks import Ranks
from pytorch.test_resume import AskToStop
from pytorch.trials import LineTrial, StopAfter, fit, fixed_seed

from core_sdk.pytorch import Batch, Epoch, LRScheduler, PyTorchCallback, Trainer, init

WINDOW = 4


def run(job: str, stop: PyTorchCallback | None = None, window: int = WINDOW, **arguments: Any) -> LineTrial:
    """Trains for three epochs of three batches."""
    return fit(job, stop, window=window, **arguments)[1]


@pytest.mark.parametrize("stopped_after", [3, 0, 1, 2, 4, 6])
def test_a_stop_within_a_window_changes_nothing(stopped_after: int) -> None:
    """A training that is stopped within an accumulation resumes with the same losses and weights."""
    whole = run("whole")

    first = run("stopped", StopAfter(stopped_after))
    second = run("stopped")

    assert len(first.trained) == stopped_after + 1
    assert first.trained + second.trained == whole.trained
    assert weights(second) == weights(whole)


def test_a_window_that_the_end_of_the_training_cuts_off_is_completed_later(caplog: pytest.LogCaptureFixture) -> None:
    """Gradients of an accumulation that the training's end cuts off are kept in the checkpoint and applied later."""
    whole = run("whole", max_length=Batch(8))

    shorter = run("longer", max_length=Batch(6))
    warned = caplog.text
    longer = run("longer", max_length=Batch(8))

    assert "the gradients of the last 2 batches are kept in the checkpoint" in warned
    assert len(shorter.trained) == 6
    assert weights(shorter) != weights(whole)
    assert weights(longer) == weights(whole)


def weights(trial: LineTrial) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in trial.model.parameters()]


def train(job: str, stop_after: str, home: str) -> None:
    """Trains on one rank and prints its samples and weights."""
    import os

    os.environ["CORE_SDK_HOME"] = home
    with init(job_id=job, aggregation_frequency=WINDOW) as context:
        fixed_seed(context)
        trial = LineTrial(context, batch_size=4)
        if stop_after:
            trial.callbacks = {"stop": AskToStop(context, int(stop_after))}
        Trainer(trial, context).fit(max_length=Epoch(3))
        print(json.dumps([trial.trained, weights(trial)]))


def test_ranks_that_are_stopped_within_a_window_go_on_alike(ranks: Ranks, tmp_path: Path) -> None:
    """Ranks that are stopped within an accumulation window resume with their own gradients."""

    def outcomes(job: str, stop: str = "") -> list[Any]:
        return [json.loads(printed) for printed in ranks.run(train, 2, job, stop, str(tmp_path / "home"))]

    whole = outcomes("whole")

    first, second = outcomes("stopped", "1"), outcomes("stopped")

    for rank in range(2):
        assert first[rank][0] + second[rank][0] == whole[rank][0]
        assert second[rank][1] == whole[rank][1]
    assert whole[0][1] == whole[1][1]


def test_other_ranks_take_the_mean_of_all_gradients(tmp_path: Path) -> None:
    """On another number of ranks, each rank resumes with the mean of all gradients."""
    from core_sdk._runtime.gradients import read_gradients
    from core_sdk.loop._plan import DataParallelRank

    for rank, value in enumerate([1.0, 5.0]):
        torch.save([[torch.tensor([value]), None]], tmp_path / f"gradients.{rank}.pt")

    gradients = read_gradients(tmp_path, DataParallelRank(0, 1))

    assert gradients == [[torch.tensor([3.0]), None]]


class AdversarialTrial(LineTrial):
    """A trial of two models in which a step of one leaves gradients in the other."""

    def __init__(self, context: Any, **loader: Any) -> None:
        super().__init__(context, **loader)
        self.judge = context.wrap_model(torch.nn.Linear(1, 1))
        self.judge_optimizer = context.wrap_optimizer(torch.optim.Adam(self.judge.parameters(), lr=0.01))
        schedule = torch.optim.lr_scheduler.ExponentialLR(self.judge_optimizer, 0.9)
        context.wrap_lr_scheduler(schedule, LRScheduler.StepMode.STEP_EVERY_BATCH, frequency=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, _ = batch
        judged = self.judge(self.model(x).detach()).mean() - self.judge(x).mean()
        self.context.backward(judged)
        self.context.step_optimizer(self.judge_optimizer)
        fooled = -self.judge(self.model(x)).mean()
        self.context.backward(fooled)
        self.context.step_optimizer(self.optimizer)
        self.trained.append((epoch_idx, batch_idx, x.flatten().tolist(), judged.item(), fooled.item()))
        return {"judged": judged, "fooled": fooled}


@pytest.mark.parametrize("window", [1, 2])
def test_gradients_that_one_model_leaves_in_another_survive_a_stop(window: int) -> None:
    """Gradients that one model leaves in another survive a stop."""
    whole = run("whole", kind=AdversarialTrial, window=window)

    first = run("stopped", StopAfter(2), kind=AdversarialTrial, window=window)
    second = run("stopped", kind=AdversarialTrial, window=window)

    assert first.trained + second.trained == whole.trained
    assert weights(second) == weights(whole)
