"""What a configuration says to a Trainer, as values."""

from __future__ import annotations

from typing import Any

import pytest

from core_sdk._ground.config import load, to_mapping
from core_sdk._ground.environment import is_test_mode
from core_sdk.loop import Batch, Epoch, Record
from core_sdk.pytorch._harness import fit_arguments

SINGLE = "entrypoint: model_def:MyTrial\nsearcher: {name: single, metric: loss, max_length: {batches: 937}}\n"
HALVING = "entrypoint: a:B\nsearcher: {name: asha, metric: loss, max_trials: 9, num_rungs: 3, %s}\n"

DEFAULTS = {
    "validation_period": None,
    "checkpoint_period": None,
    "checkpoint_policy": "best",
    "step_zero_validation": False,
    "profiling_enabled": False,
}


def arguments(text: str) -> dict[str, Any]:
    """Returns the arguments of fit() for a configuration."""
    return fit_arguments(to_mapping(load(text, source="const.yaml").config))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SINGLE, {}),
        (f"{SINGLE}min_validation_period: {{batches: 100}}", {"validation_period": Batch(100)}),
        (f"{SINGLE}min_validation_period: {{records: 3200}}", {"validation_period": Record(3200)}),
        (f"{SINGLE}min_checkpoint_period: {{epochs: 2}}", {"checkpoint_period": Epoch(2)}),
        (f"{SINGLE}min_checkpoint_period: {{batches: 0}}", {}),
        (f"{SINGLE}min_checkpoint_period: 0", {}),
        (f"{SINGLE}min_checkpoint_period: 10", {"checkpoint_period": Batch(10)}),
        (f"{SINGLE}scheduling_unit: 10", {"reporting_period": Batch(10)}),
        (f"{SINGLE}checkpoint_policy: none", {"checkpoint_policy": "none"}),
        (f"{SINGLE}perform_initial_validation: true", {"step_zero_validation": True}),
        (f"{SINGLE}profiling: {{enabled: true}}", {"profiling_enabled": True}),
        (HALVING % "time_metric: epochs, max_time: 16", {"max_length": Epoch(16)}),
        (HALVING % "time_metric: batches, max_time: 900", {"max_length": Batch(900)}),
        (HALVING % "max_length: {epochs: 9}", {}),
    ],
)
def test_a_configuration_says_how_to_train(text: str, expected: dict[str, Any]) -> None:
    """A `max_length` is left to the Trainer, which asks the searcher for it."""
    assert arguments(text) == DEFAULTS | expected


def test_a_time_metric_that_only_a_script_could_count_is_an_error() -> None:
    """A time metric that only a script can count is refused with advice."""
    with pytest.raises(ValueError, match=r"searcher.time_metric is 'hours'.*batches, epochs, records. Write a script"):
        arguments(HALVING % "time_metric: hours, max_time: 9")


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_a_variable_says_that_a_training_is_only_tested(value: str, expected: bool) -> None:
    """CORE_SDK_TEST_MODE turns the test mode on unless it is empty or 0."""
    assert is_test_mode({"CORE_SDK_TEST_MODE": value}) is expected
