"""Rungs, on which trials of equal length are compared, and the brackets of an adaptive search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from uuid import UUID

from sortedcontainers import SortedList

Score = tuple[int, float]
"""A metric in the order from best to worst."""

EXITED: Score = (2, 0.0)
"""The score of a trial that exited early: worse than all others."""


def is_number(score: Score) -> bool:
    """Whether the metric was a finite number. The training of other trials has diverged or failed."""
    return score[0] == 0


def score_of(metric: float, smaller_is_better: bool) -> Score:
    """NaN and the infinities are worse than all numbers."""
    if not math.isfinite(metric):
        return (1, 0.0)
    return (0, float(metric if smaller_is_better else -metric))


Entry = tuple[int, float, int, UUID]
"""A score, the entry's number, which lets the earlier of two equal scores be the better one, and the trial."""


class Rung:
    """The trials that have reached one length, best first."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.entries: SortedList[Entry] = SortedList()


def rung_lengths(max_length: int, num_rungs: int, divisor: float) -> list[int]:
    """The lengths of the rungs, each about `divisor` times that below it. Rungs of equal length are one."""
    lengths = {max(math.floor(max_length / Fraction(divisor) ** power), 1) for power in range(num_rungs)}
    return sorted(lengths)


@dataclass(frozen=True)
class Bracket:
    """Trials that share a number of rungs."""

    num_rungs: int
    max_trials: int
    max_concurrent: int


def brackets(depths: Sequence[int], *, max_trials: int, max_concurrent: int, divisor: float) -> list[Bracket]:
    """Brackets of these depths, deepest first, that cost about the same. A `max_concurrent` of 0 is no limit."""
    depths = sorted(depths, reverse=True)[:max_trials]
    weights = [divisor ** (depth - 1) / depth for depth in depths]
    num_trials = [max(int(weight / sum(weights) * max_trials), 1) for weight in weights]
    num_trials[0] += max(max_trials - sum(num_trials), 0)
    while sum(num_trials) > max_trials:
        num_trials[num_trials.index(max(num_trials))] -= 1
    if max_concurrent == 0:
        concurrent = [max(num_trials[-1], int(divisor))] * len(depths)
    else:
        each, rest = divmod(max(max_concurrent, len(depths)), len(depths))
        concurrent = [each + (index < rest) for index in range(len(depths))]
    return [Bracket(*of_bracket) for of_bracket in zip(depths, num_trials, concurrent, strict=True)]


def bracket_depths(mode: str, *, max_rungs: int, max_length: int, max_trials: int, divisor: float) -> list[int]:
    """The numbers of rungs that the brackets of an adaptive search have."""
    deepest = min(max_rungs, num_powers(max_length, divisor) + 1, num_powers(max_trials, divisor) + 1)
    shallowest = {"aggressive": deepest, "standard": (deepest - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(deepest, shallowest - 1, -1))


def num_powers(value: int, divisor: float) -> int:
    """The largest n for which divisor**n <= value; exact, where a logarithm would not be."""
    power, count = Fraction(divisor), 0
    while power <= value:
        power, count = power * Fraction(divisor), count + 1
    return count
