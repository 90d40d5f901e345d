"""The interval between checkpoints: as published, and against a simulation of failures."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from itertools import accumulate

import numpy as np
import pytest

from core_sdk._home.time_spent import best_interval, cost_share

_MINUTE = 60.0
_HOUR = 3600.0
_FAILURES = 1000


@pytest.mark.parametrize(("failure_s", "minutes"), [(24 * _HOUR, 117), (6 * _HOUR, 57), (15 * _MINUTE, 9.1)])
def test_the_interval_is_that_of_the_paper(failure_s: float, minutes: float) -> None:
    """Daly's figures 3 to 5: a save takes 5 minutes."""
    assert best_interval(5 * _MINUTE, failure_s) / _MINUTE == pytest.approx(minutes, abs=0.5)


def test_a_save_that_outlasts_most_failures_is_made_once_in_a_while() -> None:
    assert best_interval(600.0, 300.0) == 300.0
    assert best_interval(0.0, 300.0) == 0.0


def _time_for(useful_s: float, interval_s: float, save_s: float, restart_s: float, failures: list[float]) -> float:
    """Returns how long a training of `useful_s` takes that fails at these times."""
    at, done, number = 0.0, 0.0, 0
    while done < useful_s:
        end = at + min(interval_s, useful_s - done) + save_s
        number = bisect_left(failures, at, number)
        if number < len(failures) and failures[number] < end:
            at = failures[number] + restart_s
            number = bisect_left(failures, at, number)
        else:
            done += end - at - save_s
            at = end
    return at


@pytest.mark.parametrize(("save_s", "failure_s"), [(2.0, 2 * _HOUR), (30.0, 6 * _HOUR), (5 * _MINUTE, 2 * _HOUR)])
def test_no_interval_does_much_better_in_a_thousand_failures(save_s: float, failure_s: float) -> None:
    """The formula's interval is within 10 % of the best one, and the time that it takes within 1 % of the least."""
    generator = random.Random(5)
    failures = list(accumulate(generator.expovariate(1 / failure_s) for _ in range(_FAILURES)))
    formula = best_interval(save_s, failure_s)
    useful_s = failures[-1] * 0.5

    factors = [2 ** (power / 8) for power in range(-8, 9)]
    times = [_time_for(useful_s, formula * factor, save_s, 60.0, failures) for factor in factors]
    # Few failures more or less decide which of two neighbours is better, so that the best factor is that of a curve.
    lost_work, saves, _ = np.linalg.lstsq(np.array([(x, 1 / x, 1) for x in factors]), np.array(times), rcond=None)[0]

    assert times[8] <= min(times) * 1.01
    assert math.sqrt(saves / lost_work) == pytest.approx(1.0, abs=0.1)


def test_the_model_has_its_least_cost_at_the_interval() -> None:
    for save_s in (0.5, 10.0, 300.0):
        formula = best_interval(save_s, 2 * _HOUR)
        costs = {factor / 100: cost_share(formula * factor / 100, save_s, 2 * _HOUR) for factor in range(50, 201)}
        assert min(costs, key=lambda each: costs[each]) == pytest.approx(1.0, abs=0.02)
