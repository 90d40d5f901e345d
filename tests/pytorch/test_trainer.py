"""A Trainer trains a trial as long, and validates, saves and reports it as often, as `fit()` is told."""

from __future__ import annotations

import io
import logging
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pytorch.trials import LineTrial
from torch.utils.data import DataLoader as TorchDataLoader

import core_sdk as det
from core_sdk import client
from core_sdk.pytorch import Batch, Epoch, FitResult, PyTorchTrialContext, Record, Trainer, init

BY_ERROR = {"searcher": {"metric": "error"}}


def fit(
    make: Callable[[PyTorchTrialContext], Any] = LineTrial, *, exp_conf: Any = BY_ERROR, **arguments: Any
) -> tuple[FitResult, Any]:
    with init(exp_conf=exp_conf) as context:
        trial = make(context)
        return Trainer(trial, context).fit(**arguments), trial


def steps(group: str) -> list[int | None]:
    return [report.steps_completed for report in client.get_trial(1).iter_metrics(group)]


def checkpoint_steps() -> list[int]:
    return sorted(checkpoint.metadata["steps_completed"] for checkpoint in client.get_trial(1).list_checkpoints())


def test_a_trial_is_trained_validated_reported_and_saved() -> None:
    """fit() trains, validates after each epoch, reports and saves."""
    result, trial = fit(max_length=Epoch(3), validation_period=Epoch(1))

    assert [batch[:2] for batch in trial.trained] == [(index // 3, index) for index in range(9)]
    for epoch in range(3):
        assert sorted(x for batch in trial.trained if batch[0] == epoch for x in batch[2]) == list(range(20))
    assert result.reason == "completed"
    assert result.steps_completed == 9
    assert result.metrics["mean_x"] == 9.5
    reports = list(client.get_trial(1).iter_metrics("validation"))
    assert [(report.steps_completed, report.metrics["epochs"]) for report in reports] == [(3, 1), (6, 2), (9, 3)]
    assert reports[-1].metrics == result.metrics | {"batches": 9, "epochs": 3}
    assert steps("training") == [3, 6, 9]


def test_a_training_report_has_the_mean_over_samples_and_each_batch() -> None:
    """A training report has the mean over samples and the metrics of each batch."""
    _, trial = fit(max_length=Epoch(1))

    (report,) = client.get_trial(1).iter_metrics("training")
    losses = [batch[3] for batch in trial.trained]
    assert report.metrics["loss"] == pytest.approx((8 * losses[0] + 8 * losses[1] + 4 * losses[2]) / 20)
    assert report.batch_metrics == [{"loss": loss} for loss in losses]


def test_reports_come_as_often_as_they_are_wanted() -> None:
    """Training reports come with the reporting period and at the end."""
    fit(max_length=Batch(5), reporting_period=Batch(2))

    assert steps("training") == [2, 4, 5]
    assert steps("validation") == [5]


def test_a_length_in_samples_ends_with_the_batch_that_has_the_last_of_them() -> None:
    """A length in samples ends with the batch that contains the last of them."""
    result, _ = fit(max_length=Record(21), checkpoint_period=Record(10))

    assert result.steps_completed == 4
    assert checkpoint_steps() == [2, 3, 4]


def test_the_policy_best_follows_the_searchers_metric() -> None:
    """The policy "best" saves after each validation that improves the searcher's metric."""

    class Erring(LineTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"error": [3.0, 2.0, math.nan, 5.0, 1.0][len(self.trained) - 1], "x": 0.0}

    result, _ = fit(Erring, max_length=Batch(5), validation_period=Batch(1))

    assert checkpoint_steps() == [1, 2, 5]
    assert result.best_checkpoint == result.latest_checkpoint
    assert client.get_trial(1).top_checkpoint().uuid == result.best_checkpoint


@pytest.mark.parametrize(("policy", "expected"), [("all", [2, 4, 5]), ("none", [5])])
def test_other_policies_do_not_look_at_metrics(policy: Any, expected: list[int]) -> None:
    """The policies "all" and "none" ignore metrics, and the last batch is always saved."""
    fit(max_length=Batch(5), validation_period=Batch(2), checkpoint_policy=policy)

    assert checkpoint_steps() == expected


def test_without_a_searchers_metric_each_validation_is_saved_and_a_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a searcher's metric, every validation is saved and one warning says so."""
    fit(max_length=Batch(3), validation_period=Batch(1), exp_conf=None)

    assert checkpoint_steps() == [1, 2, 3]
    assert caplog.text.count("nothing says which of the validation metrics error, mean_x") == 1


def test_a_validation_without_the_searchers_metric_is_refused() -> None:
    """A validation without the searcher's metric is refused with the metrics that it has."""
    with pytest.raises(ValueError, match=r"metric 'accuracy' is not among the validation metrics .*error, mean_x"):
        fit(max_length=Batch(1), exp_conf={"searcher": {"metric": "accuracy"}})


def test_the_first_validation_comes_before_the_first_batch() -> None:
    """With step_zero_validation the model is validated before the first batch."""
    fit(max_length=Batch(1), step_zero_validation=True)

    assert steps("validation") == [0, 1]


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_test_trains_and_validates_one_batch_and_saves(monkeypatch: pytest.MonkeyPatch, by_environment: bool) -> None:
    """Test mode trains one batch, validates and saves, whatever the length and periods."""
    if by_environment:
        monkeypatch.setenv("CORE_SDK_TEST_MODE", "1")

    result, trial = fit(
        max_length=Epoch(100), validation_period=Batch(1), step_zero_validation=True, test_mode=not by_environment
    )

    assert result.steps_completed == len(trial.trained) == 1
    assert result.metrics["mean_x"] == 3.5
    assert checkpoint_steps() == [1]
    assert steps("validation") == [1]


def test_hyperparameters_that_cannot_be_trained_end_the_trial() -> None:
    """InvalidHP in a trial completes it with exit status 0."""

    class Refusing(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            raise det.InvalidHP("too large")

    with pytest.raises(SystemExit) as ended:
        fit(Refusing, max_length=Batch(1))

    assert ended.value.code == 0
    assert client.get_trial(1).state.name == "COMPLETED"


def test_the_use_of_the_machine_is_recorded_while_the_trial_is_trained() -> None:
    """profiling_enabled=True turns the profiler on during fit()."""

    class Watching(LineTrial):
        is_on: list[bool] = []

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.is_on.append(self.context.core_context.profiler._collector is not None)
            return super().train_batch(batch, epoch_idx, batch_idx)

    _, trial = fit(Watching, max_length=Batch(1), profiling_enabled=True)
    fit(Watching, max_length=Batch(1))

    assert Watching.is_on == [True, False]
    assert trial.context.core_context.profiler._collector is None


def test_what_configure_profiler_is_told_has_another_place(caplog: pytest.LogCaptureFixture) -> None:
    """configure_profiler() has no effect and names the argument of fit() that replaces it."""
    with init() as context:
        trainer = Trainer(LineTrial(context), context)
        trainer.configure_profiler(sync_timings=True, enabled=True, begin_on_batch=0, end_after_batch=10)

    assert "fit(profiling_enabled=True)" in caplog.text


@pytest.mark.parametrize(
    ("is_terminal", "wanted", "is_shown"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_a_bar_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, wanted: bool | None, is_shown: bool
) -> None:
    """A progress bar is shown on a terminal unless an argument decides otherwise."""
    screen = io.StringIO()
    screen.isatty = lambda: is_terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    logging.disable(logging.CRITICAL)

    fit(max_length=Epoch(1), progress_bar=wanted)

    logging.disable(logging.NOTSET)
    assert ("3/3" in screen.getvalue()) == is_shown


def test_a_length_is_needed() -> None:
    """fit() without a length is refused with an example."""
    with pytest.raises(ValueError, match=r"pass max_length to fit\(\), such as Epoch\(10\)"):
        fit()


def test_a_period_is_a_unit() -> None:
    """A period that is a number without a unit is refused."""
    with pytest.raises(TypeError, match=r"the validation period is 5: give Batch, .* such as Batch\(100\)"):
        fit(max_length=Batch(1), validation_period=5)


@pytest.mark.parametrize("missing", ["wrap_model", "wrap_optimizer"])
def test_a_trial_must_wrap_a_model_and_an_optimizer(missing: str) -> None:
    """A trial that wraps no model or no optimizer is refused with the method to call."""

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = LineTrial(context)
        (context.models if missing == "wrap_model" else context.optimizers).clear()
        return trial

    with pytest.raises(ValueError, match=rf"LineTrial has wrapped no .*: call context\.{missing}\("):
        fit(make, max_length=Batch(1))


@pytest.mark.parametrize("method", ["build_training_data_loader", "build_validation_data_loader"])
def test_a_loader_of_another_class_is_refused_unless_the_trial_allows_it(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another class of loader is refused unless the trial disables the check."""
    ours = getattr(LineTrial, method)
    monkeypatch.setattr(LineTrial, method, lambda self: TorchDataLoader(ours(self).dataset, 8))

    with pytest.raises(RuntimeError, match=rf"{method}\(\) returned .*pytorch.DataLoader.*disable_dataset_repro"):
        fit(max_length=Batch(1))


def test_what_is_no_loader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is no loader is refused with its type."""
    monkeypatch.setattr(LineTrial, "build_training_data_loader", lambda self: None)

    with pytest.raises(TypeError, match=r"build_training_data_loader\(\) returned a NoneType"):
        fit(max_length=Batch(1))
