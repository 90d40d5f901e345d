"""Rungs, on which trials of equal length are compared."""

from __future__ import annotations

import math
from fractions import Fraction
from uuid import UUID

from sortedcontainers import SortedList

Entry = tuple[int, float, int, UUID]
"""The score (two numbers), the entry's number and the trial. Of two equal scores, the earlier entry is better."""


class Rung:
    """The trials that have reached one length, best first."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.entries: SortedList[Entry] = SortedList()


def rung_lengths(max_length: int, num_rungs: int, divisor: float) -> list[int]:
    """Returns the lengths of the rungs, each about `divisor` times the one below it. Equal lengths are merged."""
    lengths = {max(math.floor(max_length / Fraction(divisor) ** power), 1) for power in range(num_rungs)}
    return sorted(lengths)
