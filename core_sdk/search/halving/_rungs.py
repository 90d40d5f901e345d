"""Rungs, on which trials of equal length are compared."""

from __future__ import annotations

import math
from fractions import Fraction
from uuid import UUID

from sortedcontainers import SortedList

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
