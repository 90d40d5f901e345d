"""The curve of the metric that says what is best in a trial, in at most 30 points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core_sdk._ground.records import Metric, SearcherMetric, format_number
from core_sdk._home import View
from core_sdk._home.finding.facts import metric_named
from core_sdk._home.rows import SeriesRow, TrialRow

_NUM_BINS = 27  # one more where the first step lies within a bin, and the two extremes
_NUM_NARROWER = 64

Point = tuple[float, Metric]
"""A step and a value."""


@dataclass(frozen=True)
class DecidingCurve:
    """The values of the metric that decides."""

    metric: str
    smaller_is_better: bool | None
    """None if nobody has said which metric decides: then there is no best value."""
    points: Sequence[Point]
    """At most 30: the means of equally wide stretches of steps, and the true extremes. Where a stretch has a value that
    is not finite, its point is the last value in it."""
    smallest: Point | None
    """The smallest finite value, where it was reached first; None if no value is finite."""
    largest: Point | None
    last: Point
    num_points: int
    num_not_finite: int
    """The number of values that are NaN or infinite."""
    parent_best: Metric | None
    """The best value of the parent; of a trial that goes on, the parent's best up to the same step."""
    is_parent_cut: bool = False
    """Whether the parent trained beyond that step."""

    @property
    def best(self) -> Point | None:
        if self.smaller_is_better is None:
            return None
        return self.smallest if self.smaller_is_better else self.largest

    def lines(self) -> list[str]:
        if self.smallest is None or self.largest is None:
            return [f"{self.metric}: none of its {self.num_points} values is a finite number, last {_text(self.last)}"]
        extremes = f"smallest {_text(self.smallest)}, largest {_text(self.largest)}"
        told = f"{self.metric}: {extremes}"
        if self.best is not None:
            better = "smaller" if self.smaller_is_better else "larger"
            told = f"{self.metric} ({better} is better): best {_text(self.best)}{self._against_parent()}"
        left_out = f", {self.num_not_finite} of {self.num_points} values not finite" if self.num_not_finite else ""
        return [f"{told}, last {_text(self.last)}{left_out}", " ".join(map(_text, self.points))]

    def _against_parent(self) -> str:
        if self.parent_best is None:
            return ""
        return f", the parent's {format_number(self.parent_best)}{' up to that step' * self.is_parent_cut}"


def read_curve(
    view: View, row: TrialRow, parent: TrialRow | None, metric: SearcherMetric | None
) -> DecidingCurve | None:
    """Reads the curve of a metric, or without one of any, a validation's first; None if it was not reported."""
    known = {(one.group, one.name): one for one in view.series(row.trial_id)}
    figures = view.figures([row.trial_id])[row.trial_id]
    if metric is not None:
        pair = metric_named(metric.name, known, metric.group)
    else:
        in_order = sorted(known, key=lambda pair: (pair[0] != "validation", pair[0] != "training"))
        with_number = (pair for pair in in_order if figures[pair[0]][pair[1]].minimum is not None)
        pair = next(with_number, next(iter(in_order), None))
    if pair is None:
        return None
    series, found = known[pair], figures[pair[0]][pair[1]]
    smallest = _first_of(view, row.trial_id, series, found.minimum)
    largest = _first_of(view, row.trial_id, series, found.maximum)
    points, num_not_finite = _points(view, row.trial_id, series)
    extremes = {point for point in (smallest, largest) if point is not None}
    curve = DecidingCurve(
        metric=".".join(pair),
        smaller_is_better=None if metric is None else metric.smaller_is_better,
        points=sorted(extremes | {point for point in points if point[0] not in {steps for steps, _ in extremes}}),
        smallest=smallest,
        largest=largest,
        last=(series.last_steps, found.last),
        num_points=series.count,
        num_not_finite=num_not_finite,
        parent_best=None,
    )
    return curve if parent is None or metric is None else _against(view, curve, row, parent, series, metric)


def _against(
    view: View, curve: DecidingCurve, row: TrialRow, parent: TrialRow, series: SeriesRow, metric: SearcherMetric
) -> DecidingCurve:
    """Compares the curve with the parent's, while the trial goes on only with what the parent had reached by then."""
    ends = view.step_range([parent.trial_id], series.group, series.name)
    if ends is None:
        return curve
    is_cut = row.state in ("ACTIVE", "PAUSED") and ends[1] > series.last_steps
    within = ends[0], min(ends[1], series.last_steps) if is_cut else ends[1]
    if within[1] < within[0]:
        return curve
    bins = view.bins(parent.trial_id, series.group, series.name, _width(*within, 1), within=within)
    reached = metric.best_first([*bins.minima, *bins.maxima], float)
    return replace(curve, parent_best=reached[0] if reached else None, is_parent_cut=is_cut)


def _points(view: View, trial_id: int, series: SeriesRow) -> tuple[list[Point], int]:
    """Returns a point for each of equally wide stretches of steps, and the number of values that are not finite."""
    width = _width(series.first_steps, series.last_steps, _NUM_BINS)
    bins = view.bins(trial_id, series.group, series.name, width)
    points = []
    for last_steps, count, num_finite, mean in zip(
        bins.last_steps, bins.counts, bins.finite_counts, bins.means, strict=True
    ):
        value = mean if num_finite == count else _value_at(view, trial_id, series, int(last_steps))
        points.append((last_steps, value))
    return points, sum(bins.counts) - sum(bins.finite_counts)


def _first_of(view: View, trial_id: int, series: SeriesRow, value: Metric | None) -> Point | None:
    """Returns an extreme value with the step at which it was reached first."""
    if value is None:
        return None
    first, last = series.first_steps, series.last_steps
    while first < last:
        width = _width(first, last, _NUM_NARROWER)
        bins = view.bins(trial_id, series.group, series.name, width, within=(first, last))
        ends = zip(bins.first_steps, bins.last_steps, bins.minima, bins.maxima, strict=True)
        first, last = next((int(begin), int(end)) for begin, end, *extremes in ends if float(value) in extremes)
    return first, value


def _value_at(view: View, trial_id: int, series: SeriesRow, step: int) -> Metric:
    (bucket,) = view.buckets(trial_id, series.group, series.name, 1, within=(step, step))
    return math.nan if bucket.minimum is None else bucket.minimum


def _width(first: int, last: int, num_bins: int) -> int:
    return max(1, -(-(last - first + 1) // num_bins))


def _text(point: Point) -> str:
    steps, value = point
    return f"{steps:g}:{format_number(value)}"
