"""A training that was stopped goes on as if it had never been stopped."""

from __future__ import annotations

import functools
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial, StopAfter, fit, fixed_seed

from core_sdk import client
from core_sdk.pytorch import Batch, Epoch, FitResult, PyTorchCallback, PyTorchTrialContext, Trainer, init


class StopAtStart(PyTorchCallback):
    """Asks for a stop before the first batch."""

    def on_training_start(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


class DrawsInHooks(PyTorchCallback):
    """Draws random numbers wherever a stop adds a call of a hook, or leaves one out."""

    def _draw(self, *_: Any, **__: Any) -> None:
        random.random()
        torch.rand(3)

    on_trial_startup = on_training_start = on_training_workload_end = _draw
    on_validation_start = on_validation_end = on_validation_epoch_start = on_validation_epoch_end = _draw
    on_checkpoint_load_start = on_checkpoint_save_start = on_checkpoint_write_end = on_checkpoint_upload_end = _draw

    def state_dict(self) -> dict[str, Any]:
        self._draw()
        return {}


class StoppedAsItStarts(LineTrial):
    """Sends this process a SIGTERM while it builds its data."""

    def build_training_data_loader(self) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return super().build_training_data_loader()


class AskToStop(PyTorchCallback):
    """Has the trial itself ask for a stop."""

    def __init__(self, context: PyTorchTrialContext, batch_idx: int) -> None:
        self.context = context
        self.batch_idx = batch_idx

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]) -> None:
        if batch_idx == self.batch_idx:
            self.context.set_stop_requested(True)


class StopInValidation(LineTrial):
    """Sends this process a SIGTERM in a batch of a validation."""

    stops_at: tuple[int, int] | None = None

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if self.stops_at == (len(self.trained), batch_idx):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().evaluate_batch(batch, batch_idx)


run = functools.partial(fit, validation_period=Batch(2))


@pytest.mark.parametrize("stopped_after", [2, 0, 1, 3, 7])
def test_a_stop_after_any_batch_changes_nothing(stopped_after: int) -> None:
    """A stop after any batch changes neither samples, losses, random numbers nor validations."""
    whole_result, whole = run("whole")

    first_result, first = run("stopped", StopAfter(stopped_after))
    second_result, second = run("stopped")

    assert first_result.reason == "preempted"
    assert len(first.trained) == first_result.steps_completed == stopped_after + 1
    assert first.trained + second.trained == whole.trained
    assert second_result.metrics == whole_result.metrics
    assert second_result.reason == "completed"


@pytest.mark.parametrize("batch_idx", [0, 1, 2])
@pytest.mark.parametrize("batches", [2, 9])
def test_a_validation_that_a_stop_has_cut_off_is_made_up_for(
    batches: int, batch_idx: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A validation that a stop interrupted is repeated after the resume."""
    whole_result, whole = run("whole")

    monkeypatch.setattr(StopInValidation, "stops_at", (batches, batch_idx))
    first_result, first = run("stopped", kind=StopInValidation)
    second_result, second = run("stopped")

    is_cut_off = batch_idx < 2
    assert first_result.reason == ("completed" if batches == 9 and not is_cut_off else "preempted")
    assert first.trained + second.trained == whole.trained
    assert second_result.metrics == whole_result.metrics
    validations = client.get_trial(2).iter_metrics("validation")
    assert [report.steps_completed for report in validations] == [2, 4, 6, 8, 9]


@pytest.mark.parametrize(("stop", "kind"), [(StopAtStart(), LineTrial), (None, StoppedAsItStarts)])
def test_a_stop_before_the_first_batch_saves_what_there_is(stop: PyTorchCallback | None, kind: type[LineTrial]) -> None:
    """A stop before the first batch stores a checkpoint of step 0, from which the training resumes."""
    _, whole = run("whole")

    first_result, first = run("stopped", stop, kind)
    _, second = run("stopped")

    assert first_result.steps_completed == 0
    assert first_result.latest_checkpoint is not None
    assert first.trained == []
    assert second.trained == whole.trained


@pytest.mark.parametrize(
    ("stop", "stops_at"), [(StopAtStart(), None), (StopAfter(2), None), (PyTorchCallback(), (4, 1))]
)
def test_what_hooks_draw_at_random_does_not_change_the_training(
    stop: PyTorchCallback, stops_at: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random numbers that hooks draw do not change the training, even if they run once more."""

    class Drawing(StopInValidation):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {"draws": DrawsInHooks(), **super().build_callbacks()}

    _, whole = run("whole", kind=Drawing, reporting_period=Batch(3))

    monkeypatch.setattr(StopInValidation, "stops_at", stops_at)
    first_result, first = run("stopped", stop, kind=Drawing, reporting_period=Batch(3))
    monkeypatch.setattr(StopInValidation, "stops_at", None)
    _, second = run("stopped", kind=Drawing, reporting_period=Batch(3))

    assert first_result.reason == "preempted"
    assert first.trained + second.trained == whole.trained


def test_a_trial_that_stops_itself_is_complete() -> None:
    """`set_stop_requested()` ends the training after the batch, with a checkpoint; nothing is to be resumed."""
    with init() as context:
        trial = LineTrial(context)
        trial.callbacks = {"stop": AskToStop(context, 3)}
        result = Trainer(trial, context).fit(max_length=Epoch(3))

    assert (result.reason, result.steps_completed) == ("stopped", 4)
    assert client.get_trial(1).state.name == "COMPLETED"


def test_another_fit_goes_on_where_the_first_ended() -> None:
    """A second fit() continues the training, and `max_length` counts from its beginning."""
    _, whole = run("whole")

    with init() as context:
        fixed_seed(context)
        trial = LineTrial(context)
        trainer = Trainer(trial, context)
        trainer.fit(max_length=Batch(4), validation_period=Batch(2))
        result = trainer.fit(max_length=Epoch(3), validation_period=Batch(2))

    assert trial.trained == whole.trained
    assert result.steps_completed == 9


def test_an_older_checkpoint_can_be_gone_back_to() -> None:
    """After a resume from an older checkpoint, new reports replace later ones and new checkpoints are the newest."""
    with init(job_id="job") as context:
        fixed_seed(context)
        older = Trainer(LineTrial(context), context).fit(max_length=Batch(2))
    run("job")

    result, again = run("job", latest_checkpoint=older.latest_checkpoint)
    resumed, _ = run("job")

    assert [batch[1] for batch in again.trained] == [2, 3, 4, 5, 6, 7, 8]
    steps = [report.steps_completed for report in client.get_trial(1).iter_metrics("validation")]
    assert steps == [2, 4, 6, 8, 9]
    assert resumed.latest_checkpoint == result.latest_checkpoint


def test_a_training_that_is_long_enough_trains_nothing() -> None:
    """Resuming a complete training trains nothing and returns the last validation's metrics."""
    whole_result, _ = run("whole")

    again, trial = run("whole", latest_checkpoint=whole_result.latest_checkpoint)

    assert trial.trained == []
    assert again == whole_result


def test_the_checkpoint_of_another_trial_gives_weights_and_nothing_else() -> None:
    """The checkpoint of another trial gives its weights, and counters and data begin at 0."""
    first_result, first = run("first")

    second_result, second = run("second", latest_checkpoint=first_result.latest_checkpoint)

    assert [batch[:3] for batch in second.trained] == [batch[:3] for batch in first.trained]
    assert [batch[3] for batch in second.trained] != [batch[3] for batch in first.trained]
    assert second_result.steps_completed == 9


def test_every_checkpoint_loads_with_weights_only(tmp_path: Path) -> None:
    """Every checkpoint loads with weights_only and has Determined's keys."""
    result, _ = run("whole")
    checkpoint = client.get_checkpoint(result.latest_checkpoint or "")

    content = torch.load(Path(checkpoint.download(tmp_path / "copy")) / "state_dict.pth", weights_only=True)

    assert {"models_state_dict", "optimizers_state_dict", "lr_schedulers_state_dict", "callbacks"} <= content.keys()
    assert list(content["models_state_dict"][0]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert checkpoint.metadata["steps_completed"] == 9
    assert checkpoint.metadata["framework"] == f"torch-{torch.__version__}"
    assert checkpoint.metadata["format"] == "pickle"


@pytest.mark.parametrize(
    ("keep", "lr", "num_batches"),
    [(None, 0.1, 1), ("model", 0.01, 2), ({"models", "training"}, 0.01, 1)],
    ids=["default", "model", "parts"],
)
def test_what_is_kept_of_a_checkpoint_can_be_chosen(keep: Any, lr: float, num_batches: int) -> None:
    """`keep` chooses which parts of a checkpoint are restored."""

    class Learning(LineTrial):
        lr = 0.1

        def make_optimizer(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.model.parameters(), lr=self.lr)

    class Slower(Learning):
        lr = 0.01

    def fit(kind: type[LineTrial], length: int, **arguments: Any) -> tuple[FitResult, LineTrial]:
        with init(job_id="job") as context:
            trial = kind(context)
            return Trainer(trial, context).fit(max_length=Batch(length), **arguments), trial

    first, _ = fit(Learning, 1)

    _, trial = fit(Slower, 2, latest_checkpoint=first.latest_checkpoint, keep=keep)

    assert trial.optimizer.param_groups[0]["lr"] == lr
    assert len(trial.trained) == num_batches
    with pytest.raises(ValueError, match="keep has 'model'; it may have models, optimizers, lr_schedulers, callbacks"):
        fit(Slower, 2, keep={"model"})
