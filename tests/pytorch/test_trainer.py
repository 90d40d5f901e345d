"""A Trainer trains a trial, reports it, and resumes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytorch.trials import LineTrial

from core_sdk import client
from core_sdk.pytorch import Epoch, FitResult, Trainer, init


def fit(make: Callable[..., Any] = LineTrial, **arguments: Any) -> tuple[FitResult, Any]:
    with init() as context:
        trial = make(context)
        return Trainer(trial, context).fit(**arguments), trial


def test_a_trial_is_trained_validated_reported_and_saved() -> None:
    """Three epochs of 8, 8 and 4 samples."""
    result, trial = fit(max_length=Epoch(3), validation_period=Epoch(1))

    assert [batch[:2] for batch in trial.trained] == [(index // 3, index) for index in range(9)]
    for epoch in range(3):
        assert sorted(x for batch in trial.trained if batch[0] == epoch for x in batch[2]) == list(range(20))
    assert result.reason == "completed"
    assert result.steps_completed == 9
    assert result.metrics["mean_x"] == 9.5
    recorded = client.get_trial(1)
    reports = list(recorded.iter_metrics("validation"))
    assert [(report.steps_completed, report.metrics["epochs"]) for report in reports] == [(3, 1), (6, 2), (9, 3)]
    assert reports[-1].metrics == result.metrics | {"batches": 9, "epochs": 3}
    assert [report.steps_completed for report in recorded.iter_metrics("training")] == [3, 6, 9]
