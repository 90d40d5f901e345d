"""What frameworks log is reported, once, and what is no number is named."""

from __future__ import annotations

import numpy
import pytest
import torch

from core_sdk import client, core
from core_sdk._home import Home
from core_sdk.integrations._reporting import Reporter


def reports() -> list[tuple[str, int | None, dict[str, float]]]:
    return [(each.group, each.steps_completed, dict(each.metrics)) for each in client.get_trial(1).iter_metrics()]


def test_tensors_and_numpy_values_are_numbers(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """One-element tensors and arrays are reported as numbers; other values are named once and left out."""
    values = {"a": torch.tensor(0.5), "b": numpy.float32(0.25), "c": numpy.array([3]), "d": "text", "e": torch.ones(2)}
    with core.init() as context:
        reporter = Reporter(context)

        reporter.report("training", 1, values)
        reporter.report("training", 2, values)

    assert reports() == [("training", step, {"a": 0.5, "b": 0.25, "c": 3}) for step in (1, 2)]
    assert caplog.messages == [
        "'d' is not reported: it is a str, and a metric is a number",
        "'e' is not reported: it is a Tensor, and a metric is a number",
    ]


def test_a_second_evaluation_of_a_step_is_reported_too(home: Home) -> None:
    """Another evaluation of the same metrics at one step is reported in a group of its own, such as validation_2."""
    with core.init() as context:
        reporter = Reporter(context)

        reporter.report_evaluation("validation", 8, {"loss": 0.5, "epoch": 2})
        reporter.report_evaluation("validation", 8, {"other_loss": 0.7, "epoch": 2})
        reporter.report_evaluation("validation", 8, {"loss": 0.4, "epoch": 2})
        reporter.report_evaluation("validation", 8, {"loss": 0.3, "epoch": 2})
        reporter.report_evaluation("validation", 9, {"loss": 0.3, "epoch": 2})

    assert reports() == [
        ("validation", 8, {"loss": 0.5, "epoch": 2}),
        ("validation", 8, {"other_loss": 0.7}),
        ("validation_2", 8, {"loss": 0.4, "epoch": 2}),
        ("validation_3", 8, {"loss": 0.3, "epoch": 2}),
        ("validation", 9, {"loss": 0.3, "epoch": 2}),
    ]
