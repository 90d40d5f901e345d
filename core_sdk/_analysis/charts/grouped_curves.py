"""Joins the curves of several trials into one: a centre, a band, and the number of trials in each point.

Pure functions of values. The horizontal axis, x, is steps or anything else. Trials are joined at the x that they have
in common. Where they have few in common, as over time, they are joined in bins that are wide enough for each of them to
have points there. No value is interpolated, and a trial that has ended is not continued: each point says how many
trials are in it.

The points of a long curve lie in bins, too, so that it has no more points than can be drawn. The value of a trial in a
bin is then the mean of its points; the band from minimum to maximum still has every value.
"""

from __future__ import annotations

import itertools
import math
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from core_sdk._home.finding.groups import deviation, mean
from core_sdk._home.rows import Bins

_T = TypeVar("_T")

Centre = Literal["mean", "median"]
Band = Literal["range", "std", "sem", "none"]
"""The band of a curve: minimum to maximum, standard deviation or standard error about the centre, or none."""
Join = Literal["common", "bins"]
"""The way in which curves are joined: at the x that the trials have in common, or in bins."""

_FEWEST_SHARED = 0.5
"""Trials are joined at their common x if these are more than this part of all."""
_FEWEST_NEXT = 0.9
"""Bins are widened until at least this part of the bins in which a trial has points have one in the next bin, too.

A long pause, as between two attempts, is a single gap, and does not make the bins wider.
"""
_FEWEST_TRIALS = 0.7
"""A part of a curve is drawn in finer points if these have at least this part of the trials of the coarser ones."""


@dataclass(frozen=True)
class GroupedCurve:
    """The curve of a group, as columns with a value for each point."""

    join: Join
    width: float
    """The width of the bins. At common x, how many reports of a trial a point has at most: often it is one."""
    x: Sequence[float]
    """The end of each point."""
    centre: Sequence[float]
    low: Sequence[float | None]
    """None where there is no band, as the standard deviation of a single trial."""
    high: Sequence[float | None]
    num_trials: Sequence[int]
    """The number of trials in each point."""
    count: Sequence[float]
    """The mean number of reports of these trials in each point."""
    num_left_out: int
    """The number of values that are left out because they are NaN or infinite."""
    num_unshared: int
    """The number of points that are left out because some of the trials have no value there."""
    bin_width: float
    """The width of the bins in x, in each of which there is a point at most, also at common x."""

    def bins_around(self, first: float, last: float) -> tuple[float, float]:
        """Returns the beginning of the bin that holds `first`, and the end of the one that holds `last`."""
        return first // self.bin_width * self.bin_width, (last // self.bin_width + 1) * self.bin_width


def bin_width(first: int, last: int, max_points: int) -> int:
    """Returns the least power of two as a width, of which at most `max_points` bins hold the steps."""
    width = 1
    while last // width - first // width >= max_points:
        width *= 2
    return width


def place_width(first: float, last: float, max_points: int) -> float:
    """Returns the least power of two as a width, also below one, of which at most `max_points` bins hold the places."""
    if first == last:
        return 1.0
    _, exponent = math.frexp(last / max_points - first / max_points)
    width = max(math.ldexp(1, exponent - 1), sys.float_info.min)
    while last // width - first // width >= max_points:
        width *= 2
    return width


def place_bins(bins: Bins, places: Sequence[float | None], width: float) -> Bins:
    """Returns the bins of a series in bins of another axis, by the place of each on it; None is left out."""
    cells: dict[float, _TrialBin] = {}
    rows = zip(bins.counts, bins.finite_counts, bins.minima, bins.maxima, bins.means, strict=True)
    placed = ((place, row) for place, row in zip(places, rows, strict=True) if place is not None)
    for place, row in sorted(placed, key=lambda one: one[0]):
        number, cell = place // width, _cell(place, place, *row)
        cells[number] = _joined(cells[number], cell) if number in cells else cell
    columns = list(zip(*cells.values(), strict=True)) or [()] * 7
    first, last, counts, finite_counts, *figures = columns
    return Bins(
        width,
        array("d", cells),
        array("d", first),
        array("d", last),
        array("q", counts),
        array("q", finite_counts),
        *(array("d", column) for column in figures),
    )


def group_curve(trials: Sequence[Bins], centre: Centre = "mean", band: Band = "std") -> GroupedCurve:
    """Returns the curve of a group of trials, whose bins have the same width. The order of the trials does not matter.

    A group of one is the trial itself.
    """
    width = trials[0].width if trials else 1
    members = [_cells(one) for one in trials if one.numbers]
    points = _points(members)
    margin = int(any(one.num_points > 1 for found in points.values() for one in found))
    unshared = {number for number in points if not _is_shared(number, members, margin)}
    join: Join = "common"
    if unshared and len(unshared) >= (1 - _FEWEST_SHARED) * len(points):
        join, unshared = "bins", set()
        while len(points) > 1 and not all(map(_has_next, members)):
            width, members = 2 * width, [_merged(one) for one in members]
            points = _points(members)
    drawn = [
        (found, finite) for number, found in points.items() if number not in unshared and (finite := _finite(found))
    ]
    counts = (one.num_points for found, _ in drawn for one in found)
    centres = [_centre([one.mean for one in finite], centre) for _, finite in drawn]
    bands = [_band(finite, at, band) for (_, finite), at in zip(drawn, centres, strict=True)]
    return GroupedCurve(
        join=join,
        width=width if join == "bins" else max(counts, default=1),
        x=[max(one.last for one in found) for found, _ in drawn],
        centre=centres,
        low=[low for low, _ in bands],
        high=[high for _, high in bands],
        num_trials=[len(finite) for _, finite in drawn],
        count=[sum(one.num_points for one in finite) / len(finite) for _, finite in drawn],
        num_left_out=sum(sum(one.counts) - sum(one.finite_counts) for one in trials),
        num_unshared=len(unshared),
        bin_width=width,
    )


def refined(curve: GroupedCurve, part: GroupedCurve, first: float, end: float) -> GroupedCurve:
    """Returns the curve with the points of a part, which are those from `first` to before `end`, both ends of bins.

    It is the curve itself if the part has no finer bins, or many fewer trials in a point: few reports of each trial
    could not tell how wide its bins should be.
    """
    is_before, is_after = [x < first for x in curve.x], [x >= end for x in curve.x]
    replaced = [num for x, num in zip(curve.x, curve.num_trials, strict=True) if first <= x < end]
    if not replaced or not part.x or part.bin_width >= curve.bin_width:
        return curve
    if mean(part.num_trials) < _FEWEST_TRIALS * mean(replaced):
        return curve

    def spliced(whole: Sequence[_T], finer: Sequence[_T]) -> list[_T]:
        return [*itertools.compress(whole, is_before), *finer, *itertools.compress(whole, is_after)]

    return replace(
        curve,
        join=part.join,
        width=part.width,
        bin_width=part.bin_width,
        x=spliced(curve.x, part.x),
        centre=spliced(curve.centre, part.centre),
        low=spliced(curve.low, part.low),
        high=spliced(curve.high, part.high),
        num_trials=spliced(curve.num_trials, part.num_trials),
        count=spliced(curve.count, part.count),
    )


class _TrialBin(NamedTuple):
    """The points of one trial in one bin."""

    first: float
    last: float
    num_points: int
    num_finite: int
    minimum: float
    maximum: float
    mean: float


def _cell(
    first: float,
    last: float,
    num_points: int,
    num_finite: int,
    minimum: float,
    maximum: float,
    mean_value: float,
) -> _TrialBin:
    # The mean of huge numbers can be infinite, and rounding can lead it beyond the extremes.
    within = min(max(mean_value, minimum), maximum)
    return _TrialBin(first, last, num_points, num_finite, minimum, maximum, within)


class _GroupedTrial(NamedTuple):
    """A trial of the group."""

    cells: Mapping[float, _TrialBin]
    """The bins by their numbers, which are whole, in order."""
    first: float
    last: float
    """The number of its last bin."""

    def passes(self, number: float, margin: int) -> bool:
        return self.first + margin <= number <= self.last - margin


def _cells(bins: Bins) -> _GroupedTrial:
    cells = dict(zip(bins.numbers, map(_cell, *bins[2:]), strict=True))
    return _GroupedTrial(cells, bins.numbers[0], bins.numbers[-1])


def _points(members: Sequence[_GroupedTrial]) -> dict[float, list[_TrialBin]]:
    """Returns the cells of all trials by the number of their bin, in order."""
    points: defaultdict[float, list[_TrialBin]] = defaultdict(list)
    for member in members:
        for number, cell in member.cells.items():
            points[number].append(cell)
    return dict(sorted(points.items()))


def _is_shared(number: float, members: Sequence[_GroupedTrial], margin: int) -> bool:
    """Returns whether all trials that pass through the bin have the same x in it.

    Trials that begin or end in a bin of several x are not compared: `margin` is then 1.
    """
    found = (one.cells.get(number) for one in members if one.passes(number, margin))
    return len({cell and cell[:3] for cell in found}) <= 1


def _has_next(member: _GroupedTrial) -> bool:
    num_next = sum(other - one == 1 for one, other in itertools.pairwise(member.cells))
    return num_next >= _FEWEST_NEXT * (len(member.cells) - 1)


def _merged(member: _GroupedTrial) -> _GroupedTrial:
    """Returns the trial in bins that are twice as wide."""
    cells: dict[float, _TrialBin] = {}
    for number, cell in member.cells.items():
        wide = number // 2
        cells[wide] = _joined(cells[wide], cell) if wide in cells else cell
    return _GroupedTrial(cells, member.first // 2, member.last // 2)


def _joined(one: _TrialBin, other: _TrialBin) -> _TrialBin:
    finite = _finite((one, other))
    num_finite = one.num_finite + other.num_finite
    return _cell(
        one.first,
        other.last,
        one.num_points + other.num_points,
        num_finite,
        min((each.minimum for each in finite), default=math.nan),
        max((each.maximum for each in finite), default=math.nan),
        math.fsum(each.mean * (each.num_finite / num_finite) for each in finite),
    )


def _finite(cells: Iterable[_TrialBin]) -> list[_TrialBin]:
    return [cell for cell in cells if cell.num_finite]


def _centre(values: Sequence[float], centre: Centre) -> float:
    if centre == "median":
        ordered = sorted(values)
        low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
        # Halves do not overflow, but nothing is left of the half of the smallest number.
        return min(max(low / 2 + high / 2, low), high)
    return mean(values)


def _band(cells: Sequence[_TrialBin], centre: float, band: Band) -> tuple[float | None, float | None]:
    if band == "range":
        return min(one.minimum for one in cells), max(one.maximum for one in cells)
    if band == "none" or len(cells) == 1:
        return None, None
    width = deviation([one.mean for one in cells]) / (math.sqrt(len(cells)) if band == "sem" else 1)
    low, high = centre - width, centre + width
    return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)
