"""Joins the curves of several trials into one: a centre, a band, and the number of trials in each point.

Pure functions of values. Trials are joined at the steps that they have in common. Where they have few in common, they
are joined in bins that are wide enough for each of them to have points there. Nothing is interpolated, and a trial that
has ended is not continued: each point says how many trials are in it.

The points of a long curve lie in bins, too, so that it has no more points than can be drawn. The value of a trial in a
bin is then the mean of its points; the band from minimum to maximum still has every value.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from core_sdk.tracking.finding.groups import deviation, mean
from core_sdk.tracking.rows import Bins

Centre = Literal["mean", "median"]
Band = Literal["range", "std", "sem", "none"]
"""The band of a curve: minimum to maximum, standard deviation or standard error about the centre, or none."""
Join = Literal["steps", "bins"]
"""The way in which curves are joined: at the steps that the trials have in common, or in bins."""

_FEWEST_SHARED = 0.5
"""Trials are joined at their common steps if these are at least this part of all steps."""
_FEWEST_FILLED = 0.9
"""Bins are widened until each trial has points in at least this part of those that it passes through."""


@dataclass(frozen=True)
class GroupedCurve:
    """The curve of a group, as columns with a value for each point."""

    join: Join
    width: int
    """The width of the bins in steps. At common steps, how many steps a point spans at most: often it is one."""
    steps: Sequence[int]
    """The last step of each point."""
    centres: Sequence[float]
    lows: Sequence[float | None]
    """None where there is no band, as the standard deviation of a single trial."""
    highs: Sequence[float | None]
    num_trials: Sequence[int]
    """The number of trials in each point."""
    num_left_out: int
    """The number of values that are left out because they are NaN or infinite."""
    num_unshared: int
    """The number of points that are left out because some of the trials have no value there."""


def bin_width(first: int, last: int, max_points: int) -> int:
    """Returns the least power of two as a width, of which at most `max_points` bins hold the steps."""
    width = 1
    while last // width - first // width >= max_points:
        width *= 2
    return width


def group_curve(trials: Sequence[Bins], centre: Centre = "mean", band: Band = "std") -> GroupedCurve:
    """Returns the curve of a group of trials, whose bins have the same width. The order of the trials does not matter.

    A group of one is the trial itself.
    """
    width = trials[0].width if trials else 1
    members = [_cells(one) for one in trials if one.numbers]
    points = _points(members)
    margin = 0 if width == 1 else 1
    unshared = {number for number in points if not _is_shared(number, members, margin)}
    join: Join = "steps"
    if len(unshared) > (1 - _FEWEST_SHARED) * len(points):
        join, unshared = "bins", set()
        while len(points) > 1 and not all(map(_is_filled, members)):
            width, members = 2 * width, [_merged(one) for one in members]
            points = _points(members)
    drawn = [
        (found, finite) for number, found in points.items() if number not in unshared and (finite := _finite(found))
    ]
    spans = (one.last_steps - one.first_steps + 1 for found, _ in drawn for one in found)
    centres = [_centre([one.mean for one in finite], centre) for _, finite in drawn]
    bands = [_band(finite, at, band) for (_, finite), at in zip(drawn, centres, strict=True)]
    return GroupedCurve(
        join=join,
        width=width if join == "bins" else max(spans, default=1),
        steps=[max(one.last_steps for one in found) for found, _ in drawn],
        centres=centres,
        lows=[low for low, _ in bands],
        highs=[high for _, high in bands],
        num_trials=[len(finite) for _, finite in drawn],
        num_left_out=sum(sum(one.counts) - sum(one.finite_counts) for one in trials),
        num_unshared=len(unshared),
    )


class _Cell(NamedTuple):
    """The points of one trial in one bin."""

    first_steps: int
    last_steps: int
    num_points: int
    num_finite: int
    minimum: float
    maximum: float
    mean: float


def _cell(
    first_steps: int,
    last_steps: int,
    num_points: int,
    num_finite: int,
    minimum: float,
    maximum: float,
    mean_value: float,
) -> _Cell:
    # The mean of huge numbers can be infinite, and rounding can lead it beyond the extremes.
    within = min(max(mean_value, minimum), maximum)
    return _Cell(first_steps, last_steps, num_points, num_finite, minimum, maximum, within)


class _Member(NamedTuple):
    """A trial of the group."""

    cells: Mapping[int, _Cell]
    """The bins by their numbers, in order."""
    first: int
    last: int
    """The number of its last bin."""

    def passes(self, number: int, margin: int) -> bool:
        return self.first + margin <= number <= self.last - margin


def _cells(bins: Bins) -> _Member:
    cells = dict(zip(bins.numbers, map(_cell, *bins[2:]), strict=True))
    return _Member(cells, bins.numbers[0], bins.numbers[-1])


def _points(members: Sequence[_Member]) -> dict[int, list[_Cell]]:
    """Returns the cells of all trials by the number of their bin, in order."""
    points: defaultdict[int, list[_Cell]] = defaultdict(list)
    for member in members:
        for number, cell in member.cells.items():
            points[number].append(cell)
    return dict(sorted(points.items()))


def _is_shared(number: int, members: Sequence[_Member], margin: int) -> bool:
    """Returns whether all trials that pass through the bin have the same steps in it.

    Trials that begin or end in a bin of several steps are not compared: `margin` is then 1.
    """
    found = (one.cells.get(number) for one in members if one.passes(number, margin))
    return len({cell and cell[:3] for cell in found}) <= 1


def _is_filled(member: _Member) -> bool:
    return len(member.cells) >= _FEWEST_FILLED * (member.last - member.first + 1)


def _merged(member: _Member) -> _Member:
    """Returns the trial in bins that are twice as wide."""
    cells: dict[int, _Cell] = {}
    for number, cell in member.cells.items():
        wide = number // 2
        cells[wide] = _joined(cells[wide], cell) if wide in cells else cell
    return _Member(cells, member.first // 2, member.last // 2)


def _joined(one: _Cell, other: _Cell) -> _Cell:
    finite = _finite((one, other))
    num_finite = one.num_finite + other.num_finite
    return _cell(
        one.first_steps,
        other.last_steps,
        one.num_points + other.num_points,
        num_finite,
        min((each.minimum for each in finite), default=math.nan),
        max((each.maximum for each in finite), default=math.nan),
        math.fsum(each.mean * (each.num_finite / num_finite) for each in finite),
    )


def _finite(cells: Iterable[_Cell]) -> list[_Cell]:
    return [cell for cell in cells if cell.num_finite]


def _centre(values: Sequence[float], centre: Centre) -> float:
    if centre == "median":
        ordered = sorted(values)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else ordered[middle - 1] / 2 + ordered[middle] / 2
    return mean(values)


def _band(cells: Sequence[_Cell], centre: float, band: Band) -> tuple[float | None, float | None]:
    if band == "range":
        return min(one.minimum for one in cells), max(one.maximum for one in cells)
    if band == "none" or len(cells) == 1:
        return None, None
    width = deviation([one.mean for one in cells]) / (math.sqrt(len(cells)) if band == "sem" else 1)
    low, high = centre - width, centre + width
    return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)
