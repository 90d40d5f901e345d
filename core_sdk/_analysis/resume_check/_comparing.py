"""Compares the numbers that two trainings have reported."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Reports: TypeAlias = "Mapping[tuple[int, str, str], float]"
"""The value of each metric, by its step, its group and its name, in the order of the steps."""


@dataclass(frozen=True)
class Difference:
    step: int
    metric: str
    """Group and name, such as `training.loss`."""
    expected: float
    found: float | None
    """None if it was not reported."""

    def __str__(self) -> str:
        found = "nothing" if self.found is None else f"{self.found:.9g}"
        return f"{self.metric} {found} instead of {self.expected:.9g}"


def find_differences(
    expected: Reports, found: Reports, *, ignored: frozenset[str] = frozenset(), tolerance: float = 0.0
) -> list[Difference]:
    """Returns the differences in the order of the steps. Metrics that are `ignored` are not compared. Pure."""
    return [
        Difference(step, f"{group}.{name}", value, found.get((step, group, name)))
        for (step, group, name), value in expected.items()
        if f"{group}.{name}" not in ignored and not is_equal(value, found.get((step, group, name)), tolerance)
    ]


def is_equal(expected: float, found: float | None, tolerance: float) -> bool:
    """Returns whether two values are the same bit for bit (any NaN equals any other), or differ by this share. Pure."""
    if found is None:
        return False
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    if tolerance:
        return math.isclose(expected, found, rel_tol=tolerance)
    return struct.pack("<d", expected) == struct.pack("<d", found)


def unsteady_metrics(first: Reports, second: Reports) -> frozenset[str]:
    """Returns the metrics that differ between two undisturbed trainings, such as times. Pure."""
    return frozenset(each.metric for each in find_differences(first, second))


def is_passing(differences: list[Difference], expected: Reports) -> bool:
    """Returns whether each metric that differs has its right value again at the end, as a running mean has. Pure."""
    last_steps = {f"{group}.{name}": step for step, group, name in expected}
    return all(each.step < last_steps[each.metric] for each in differences)
