"""Compares the numbers that two trainings have reported."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from core_sdk._ground.records import Report, metrics_from_json

Reports: TypeAlias = "Mapping[tuple[int, str, str], float]"
"""The value of each metric, by its step, its group and its name, in the order of the steps."""


@dataclass(frozen=True)
class Difference:
    step: int
    metric: str
    """Group and name, such as `training.loss`; of a file's metric the name alone."""
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
        Difference(step, metric_name(group, name), value, found.get((step, group, name)))
        for (step, group, name), value in expected.items()
        if metric_name(group, name) not in ignored and not is_equal(value, found.get((step, group, name)), tolerance)
    ]


def metric_name(group: str, name: str) -> str:
    """Returns the name by which people know a metric. Pure."""
    return f"{group}.{name}" if group else name


def metric_names(reports: Reports) -> list[str]:
    """Returns the names of all metrics, sorted. Pure."""
    return sorted({metric_name(group, name) for _, group, name in reports})


def merged(earlier: Reports, later: Iterable[Report]) -> Reports:
    """Returns the numbers of both by their steps, where the later ones replace the earlier ones. Pure."""
    both = dict(earlier)
    for report in later:
        for name, value in metrics_from_json(report.metrics).items():
            both[report.steps_completed, report.group, name] = value
    return dict(sorted(both.items(), key=lambda item: item[0][0]))


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
    last_steps = {metric_name(group, name): step for step, group, name in expected}
    return all(each.step < last_steps[each.metric] for each in differences)
