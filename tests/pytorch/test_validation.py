"""Metrics of a validation, by batches or by the whole dataset."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial

from core_sdk import client
from core_sdk.pytorch import Batch, MetricReducer, PyTorchTrial, PyTorchTrialContext, Reducer, Trainer, init


class Evaluated(LineTrial):
    """A trial whose metrics are computed from x, which goes from 0 to 19."""

    reducer: Any = Reducer.AVG

    def evaluate_batch(self, batch: Any) -> dict[str, Any]:  # type: ignore[override]
        return {"x": batch[0].max(), "first": batch[0][0]}

    def evaluation_reducer(self) -> Any:
        return self.reducer


class Largest(MetricReducer):
    def reset(self) -> None:
        self.value = -math.inf

    def update(self, values: torch.Tensor) -> None:
        self.value = max(self.value, values.max().item())

    def per_slot_reduce(self) -> float:
        return self.value

    def cross_slot_reduce(self, per_slot_metrics: list[float]) -> dict[str, Any]:
        return {"largest": max(per_slot_metrics), "all": per_slot_metrics}


def validate(kind: type[LineTrial], **attributes: Any) -> dict[str, Any]:
    with init(exp_conf={"searcher": {"metric": "x"}}) as context:
        trial = kind(context)
        vars(trial).update(attributes)
        return Trainer(trial, context).fit(max_length=Batch(1)).metrics


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [
        (Reducer.AVG, {"x": (8 * 7 + 8 * 15 + 4 * 19) / 20, "first": (8 * 0 + 8 * 8 + 4 * 16) / 20}),
        (Reducer.SUM, {"x": 7 + 15 + 19, "first": 24}),
        ({"x": Reducer.MAX, "first": Reducer.MIN}, {"x": 19, "first": 0}),
    ],
)
def test_metrics_of_batches_are_reduced_as_the_trial_says(reducer: Any, expected: dict[str, float]) -> None:
    """evaluation_reducer() decides how metrics of batches are combined; a mean is over samples."""
    assert validate(Evaluated, reducer=reducer) == expected


@pytest.mark.parametrize(
    ("reducer", "error", "words"),
    [
        ({"x": Reducer.AVG}, ValueError, r"evaluation_reducer\(\) .* add a reducer for first"),
        ({"x": Reducer.AVG, "first": Reducer.AVG, "y": Reducer.AVG}, ValueError, "remove that for y"),
        (max, TypeError, r"it must be a member of pytorch.Reducer. context.wrap_reducer\(\) takes functions"),
    ],
)
def test_reducers_must_fit_the_metrics(reducer: Any, error: type[Exception], words: str) -> None:
    """Reducers that do not fit the metrics are refused with the method and the metric."""
    with pytest.raises(error, match=words):
        validate(Evaluated, reducer=reducer)


@pytest.mark.parametrize("reducer", list(Reducer))
def test_nan_is_reported_as_nan(reducer: Reducer) -> None:
    """Every reducer keeps NaN, also a maximum."""

    class Diverged(Evaluated):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:  # type: ignore[override]
            return {"x": math.nan if batch_idx == 1 else 1.0}

    metrics = validate(Diverged, reducer=reducer)

    (report,) = client.get_trial(1).iter_metrics("validation")
    assert math.isnan(metrics["x"])
    assert math.isnan(float(report.metrics["x"] or 0))


def test_a_key_that_a_batch_lacks_is_named() -> None:
    """A metric that one batch lacks is named with the batch."""

    class Forgetful(LineTrial):
        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            return {"x": 1.0} | ({"y": 1.0} if batch_idx < 2 else {})

    with pytest.raises(ValueError, match=r"evaluate_batch\(\) returned for batch 2 lack 'y'"):
        validate(Forgetful)


def test_a_whole_dataset_is_evaluated_at_once() -> None:
    """evaluate_full_dataset() gets a loader of all data on the chief."""

    class Whole(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            assert not torch.is_grad_enabled()
            assert not self.model.training
            return {"x": torch.cat([x for x, _ in data_loader]).mean()}

    assert validate(Whole) == {"x": 9.5}


@pytest.mark.parametrize("has_both", [True, False])
def test_exactly_one_evaluation_must_be_defined(has_both: bool) -> None:
    """A trial must define exactly one of the two evaluation methods."""

    class Both(LineTrial):
        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            return {}

    class Neither(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

    kind, found = (Both, "both") if has_both else (Neither, "neither")
    with pytest.raises(ValueError, match=rf"{kind.__name__} has {found} evaluate_batch\(\) .* evaluate_full_dataset"):
        validate(kind)


def test_reducers_see_every_sample_of_a_validation() -> None:
    """Wrapped reducers see all samples; values that are not numbers are reported in another group."""

    class Reducing(LineTrial):
        def __init__(self, context: PyTorchTrialContext) -> None:
            super().__init__(context)
            self.largest = context.wrap_reducer(Largest(), for_training=False)
            self.count = context.wrap_reducer(sum, name="x")

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.count.update(100)
            return super().train_batch(batch, epoch_idx, batch_idx)

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            self.largest.update(batch[0])
            self.count.update(len(batch[0]))
            return {"error": 0.0}

    metrics = validate(Reducing)

    assert metrics == {"error": 0.0, "largest": 19.0, "all": [19.0], "x": 20}
    (validation,) = client.get_trial(1).iter_metrics("validation")
    (training,) = client.get_trial(1).iter_metrics("training")
    assert validation.metrics == {"error": 0.0, "largest": 19.0, "x": 20, "batches": 1, "epochs": 0}
    assert training.metrics["x"] == 100
    (other,) = client.get_trial(1).iter_metrics("validation_values")
    assert other.metrics == {"all": [19.0]}


def test_metrics_that_are_no_numbers_are_kept_beside_those_that_are(caplog: pytest.LogCaptureFixture) -> None:
    """Metrics that are not numbers are kept in another group or left out with a warning."""

    class Classifying(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            return {**super().train_batch(batch, epoch_idx, batch_idx), "norms": {"grad": torch.tensor([1.0, 2.0])}}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            ones = torch.ones(2, 2, dtype=torch.int64)
            return {"x": 0.0, "confusion": ones, "each": batch[0].flatten(), "self": object()}

        def evaluation_reducer(self) -> Any:
            return Reducer.SUM

    assert validate(Classifying) == {"x": 0.0, "confusion": [[3, 3], [3, 3]]}

    (validation,) = client.get_trial(1).iter_metrics("validation")
    (confusion,) = client.get_trial(1).iter_metrics("validation_values")
    (norms,) = client.get_trial(1).iter_metrics("training_values")
    assert validation.metrics == {"x": 0.0, "batches": 1, "epochs": 0}
    assert (confusion.steps_completed, confusion.metrics) == (1, {"confusion": [[3, 3], [3, 3]]})
    assert norms.metrics == {"norms": {"grad": [1.0, 2.0]}}
    assert caplog.text.count("the metric 'each' is not reported: its values for several batches have different") == 1
    assert caplog.text.count("the metric 'self' is not reported: it is a object") == 1


def test_a_whole_dataset_may_have_metrics_that_are_no_numbers() -> None:
    """evaluate_full_dataset() may return metrics that are not numbers."""

    class Whole(LineTrial):
        evaluate_batch = PyTorchTrial.evaluate_batch

        def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
            return {"x": 1.0, "classes": {"cat": 0.5}, "self": object()}

    assert validate(Whole) == {"x": 1.0, "classes": {"cat": 0.5}}
    (other,) = client.get_trial(1).iter_metrics("validation_values")
    assert other.metrics == {"classes": {"cat": 0.5}}


def test_a_validation_does_not_change_the_training() -> None:
    """A validation changes neither random numbers nor the modes of modules."""

    class Drawing(LineTrial):
        modes: list[bool] = []

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.model.get_submodule("1").eval()
            return super().train_batch(batch, epoch_idx, batch_idx)

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
            self.modes += [module.training for module in self.model.children()]
            return {"x": torch.rand(())}

    def trained(**arguments: Any) -> tuple[list[Any], list[bool]]:
        with init(exp_conf={"searcher": {"metric": "x"}}) as context:
            context.core_context.info.trial.trial_seed = 5
            torch.manual_seed(5)
            trial = Drawing(context)
            Trainer(trial, context).fit(max_length=Batch(4), **arguments)
            return [batch[:4] for batch in trial.trained], [module.training for module in trial.model.children()]

    often, modes = trained(validation_period=Batch(1))
    rarely, _ = trained()

    assert often == rarely
    assert modes == [True, False, True]
    assert not any(Drawing.modes)
