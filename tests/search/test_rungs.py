"""The lengths of rungs, and how an adaptive search divides its trials among brackets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_sdk.search._halving._brackets import bracket_depths, brackets, num_powers
from core_sdk.search._halving._rungs import rung_lengths
from core_sdk.search._scores import score_of


@pytest.mark.parametrize(
    ("longest", "num_rungs", "divisor", "lengths"),
    [
        (9, 3, 3, [1, 3, 9]),
        (10, 4, 2, [1, 2, 5, 10]),
        (256, 4, 4, [4, 16, 64, 256]),
        (900, 3, 3, [100, 300, 900]),
        (243, 6, 3, [1, 3, 9, 27, 81, 243]),
        (1000, 4, 10, [1, 10, 100, 1000]),
        (4, 5, 4, [1, 4]),
        (100, 3, 1.5, [44, 66, 100]),
        (7, 1, 4, [7]),
    ],
)
def test_lengths_of_rungs(longest: int, num_rungs: int, divisor: float, lengths: list[int]) -> None:
    """The lengths of rungs are distinct whole numbers, with the longest training at the top."""
    assert rung_lengths(longest, num_rungs, divisor) == lengths


@pytest.mark.parametrize(
    ("value", "divisor", "powers"),
    [(243, 3, 5), (242, 3, 4), (1000, 10, 3), (999, 10, 2), (1, 4, 0), (3, 4, 0), (256, 4, 4), (5, 1.5, 3)],
)
def test_powers_are_counted_exactly(value: int, divisor: float, powers: int) -> None:
    """num_powers() counts powers exactly, where logarithms of floats are one too low, as at 243 and 1000."""
    assert num_powers(value, divisor) == powers


@pytest.mark.parametrize(
    ("max_trials", "divisor", "depths", "trials"),
    [
        (20, 3, [3, 2, 1], [12, 5, 3]),
        (50, 3, [4, 3], [35, 15]),
        (50, 4, [3, 2], [37, 13]),
        (100, 4, [2, 4, 3], [70, 22, 8]),
        (500, 4, [5, 4, 3], [354, 110, 36]),
        (2, 4, [3, 2, 1], [1, 1]),
        (10, 3, [3, 2], [7, 3]),
    ],
)
def test_brackets_cost_about_the_same(max_trials: int, divisor: float, depths: list[int], trials: list[int]) -> None:
    """Trials are shared among brackets so that each costs about the same; the deepest gets the remainder."""
    shares = brackets(depths, max_trials=max_trials, max_concurrent=16, divisor=divisor)

    assert [share.max_trials for share in shares] == trials


@pytest.mark.parametrize(
    ("max_concurrent", "concurrent"), [(11, [4, 4, 3]), (16, [6, 5, 5]), (2, [1, 1, 0]), (0, [36, 36, 36])]
)
def test_brackets_share_the_places(max_concurrent: int, concurrent: list[int]) -> None:
    """The deepest first; without a limit, each has as many as the shallowest has trials."""
    shares = brackets([5, 4, 3], max_trials=500, max_concurrent=max_concurrent, divisor=4)

    assert [share.max_concurrent for share in shares] == concurrent


@given(
    depths=st.lists(st.integers(1, 8), min_size=1, max_size=6),
    max_trials=st.integers(1, 300),
    divisor=st.floats(1.05, 10),
)
def test_brackets_have_exactly_the_trials_of_the_search(depths: list[int], max_trials: int, divisor: float) -> None:
    """The brackets together have exactly max_trials trials, and none of them is empty."""
    shares = brackets(depths, max_trials=max_trials, max_concurrent=16, divisor=divisor)

    assert sum(share.max_trials for share in shares) == max_trials
    assert min(share.max_trials for share in shares) >= 1


@pytest.mark.parametrize(
    ("mode", "depths"), [("aggressive", [5]), ("standard", [5, 4, 3]), ("conservative", [5, 4, 3, 2, 1])]
)
def test_modes_are_depths(mode: str, depths: list[int]) -> None:
    """A mode determines the depths of brackets, which the longest training and the number of trials limit too."""
    assert bracket_depths(mode, max_rungs=5, max_length=1000, max_trials=500, divisor=4) == depths
    assert bracket_depths("aggressive", max_rungs=9, max_length=243, max_trials=500, divisor=3) == [6]
    assert bracket_depths("aggressive", max_rungs=9, max_length=243, max_trials=8, divisor=3) == [2]


def test_what_is_no_number_is_worst() -> None:
    """A metric that is NaN or infinite scores worst, whether smaller or larger is better."""
    for smaller_is_better in (True, False):
        worst = score_of(-1e308 if not smaller_is_better else 1e308, smaller_is_better)
        for value in (math.nan, math.inf, -math.inf):
            assert worst < score_of(value, smaller_is_better)
    assert score_of(2, smaller_is_better=False) < score_of(1, smaller_is_better=False)
