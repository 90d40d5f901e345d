"""The brackets of an adaptive search: the number of rungs, trials and places of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Bracket:
    """Trials that share a number of rungs."""

    num_rungs: int
    max_trials: int
    max_concurrent: int


def brackets(depths: Sequence[int], *, max_trials: int, max_concurrent: int, divisor: float) -> list[Bracket]:
    """Returns brackets of these depths, deepest first, that cost about the same.

    If `max_concurrent` is 0, every bracket gets the same default limit.
    """
    depths = sorted(depths, reverse=True)[:max_trials]
    weights = [divisor ** (depth - 1) / depth for depth in depths]
    num_trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    num_trials[0] += max(max_trials - sum(num_trials), 0)
    while sum(num_trials) > max_trials:
        num_trials[num_trials.index(max(num_trials))] -= 1
    if max_concurrent == 0:
        concurrent = [max(num_trials[-1], int(divisor))] * len(depths)
    else:
        each, rest = divmod(max_concurrent, len(depths))
        concurrent = [each + (index < rest) for index in range(len(depths))]
    return [Bracket(*of_bracket) for of_bracket in zip(depths, num_trials, concurrent, strict=True)]


def bracket_depths(mode: str, *, max_rungs: int, max_length: int, max_trials: int, divisor: float) -> list[int]:
    """Returns the number of rungs of each bracket of an adaptive search, the deepest first."""
    deepest = min(max_rungs, num_powers(max_length, divisor) + 1, num_powers(max_trials, divisor) + 1)
    shallowest = {"aggressive": deepest, "standard": (deepest - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(deepest, shallowest - 1, -1))


def num_powers(value: int, divisor: float) -> int:
    """Returns the largest n with divisor**n <= value. The result is exact, which a logarithm would not be."""
    power, count = Fraction(divisor), 0
    while power <= value:
        power, count = power * Fraction(divisor), count + 1
    return count
