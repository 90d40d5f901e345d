"""How the numbers of two trainings are compared."""

from __future__ import annotations

import math

import pytest

from core_sdk._analysis.resume_check._comparing import (
    find_differences,
    is_equal,
    is_passing,
    unsteady_metrics,
)

EXPECTED = {(1, "training", "loss"): 0.5, (2, "training", "loss"): 0.25, (2, "validation", "accuracy"): 0.75}


@pytest.mark.parametrize(
    ("expected", "found", "tolerance", "is_same"),
    [
        (0.1, 0.1, 0.0, True),
        (0.1, math.nextafter(0.1, 1), 0.0, False),
        (0.1, math.nextafter(0.1, 1), 1e-9, True),
        (0.0, -0.0, 0.0, False),
        (math.nan, math.nan, 0.0, True),
        (math.nan, 1.0, 0.5, False),
        (math.inf, math.inf, 0.0, True),
        (math.inf, -math.inf, 0.0, False),
        (1.0, None, 0.5, False),
    ],
)
def test_values_are_equal_bit_for_bit(expected: float, found: float | None, tolerance: float, is_same: bool) -> None:
    """A value equals itself only, any NaN any other, and with a tolerance what is near; a missing one equals none."""
    assert is_equal(expected, found, tolerance) is is_same


def test_differences_come_in_the_order_of_the_steps() -> None:
    """Missing values are differences, additional ones are not, and ignored metrics are not compared."""
    found = {(1, "training", "loss"): 0.5, (2, "training", "loss"): 0.3, (3, "training", "loss"): 0.1}

    differences = find_differences(EXPECTED, found)

    assert [str(each) for each in differences] == [
        "training.loss 0.3 instead of 0.25",
        "validation.accuracy nothing instead of 0.75",
    ]
    assert not find_differences(EXPECTED, found, ignored=unsteady_metrics(EXPECTED, found))


def test_a_mean_since_the_start_of_the_process_passes() -> None:
    """Metrics that are right again at the end only pass; one that is wrong at the end differs."""
    passing = find_differences(EXPECTED, EXPECTED | {(1, "training", "loss"): 0.6})
    lasting = find_differences(EXPECTED, EXPECTED | {(2, "training", "loss"): 0.6})

    assert is_passing(passing, EXPECTED)
    assert not is_passing(lasting, EXPECTED)
