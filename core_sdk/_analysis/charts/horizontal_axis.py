"""The horizontal axis of curves: where the points of a metric lie over steps, time, epochs or another metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core_sdk._ground.records import Metric, Source
from core_sdk._home import View
from core_sdk._home.finding.groups import is_named
from core_sdk._home.rows import SeriesBucket
from core_sdk.errors import NotRecordedError

_UNITS = {"steps": "steps", "time": "seconds since the start", "epochs": "epochs"}
_NUM_BUCKETS = 4000
"""The number of buckets in which epochs and other metrics are read, to interpolate between them."""


@dataclass(frozen=True)
class Series:
    """A metric of a trial."""

    trial_id: int
    group: str
    name: str
    rank: Source | None = None
    superseded_of: int | None = None
    """The attempt whose superseded points are asked for; None asks for the visible points of all attempts."""

    def buckets(self, view: View, num_buckets: int, within: tuple[int, int] | None = None) -> list[SeriesBucket]:
        return view.buckets(
            self.trial_id,
            self.group,
            self.name,
            num_buckets,
            within=within,
            superseded_of=self.superseded_of,
            rank=self.rank,
        )

    def last(self, view: View, buckets: Sequence[SeriesBucket]) -> Metric | None:
        """Returns the value that was reported last, which may be one of many in the last bucket; None if it is NaN."""
        newest = buckets[-1]
        if newest.count > 1:
            step = int(newest.last_steps)
            newest = self.buckets(view, 1, (step, step))[-1]
        return newest.maximum


def find_axis(x: str, metrics: Sequence[str]) -> str:
    """Returns the axis of this name: "steps", "time", "epochs", or one of the metrics, each "group.name".

    A metric may be named without its group. Raises `NotRecordedError`.
    """
    named = x if x in _UNITS else next((metric for metric in metrics if is_named(metric, [x])), None)
    if named is None:
        raise NotRecordedError(f"the trials have no metric {x!r} to draw curves over", "The metrics", metrics)
    return named


def unit(x: str) -> str:
    """Returns what is counted along the axis."""
    return _UNITS.get(x, x)


def places(view: View, series: Series, buckets: Sequence[SeriesBucket], x: str) -> Sequence[float | None]:
    """Returns where each bucket of a series ends on the axis; None where that was not reported.

    Time is in seconds since the Unix epoch. Epochs and other metrics are interpolated between their reports.
    """
    if x == "steps" or not buckets:
        return [bucket.last_steps for bucket in buckets]
    if x == "time":
        return view.bucket_times(
            series.trial_id,
            series.group,
            series.name,
            buckets,
            superseded_of=series.superseded_of,
            rank=series.rank,
        )
    told = _epochs(view, series) if x == "epochs" else _values(view, series, x)
    points = [(steps, float(value)) for steps, value in told if value is not None and math.isfinite(value)]
    if x == "epochs" and points and points[0][0] > 0:
        points.insert(0, (0, 0.0))
    return [_between(points, bucket.last_steps) if points else None for bucket in buckets]


def steps_within(
    first_steps: Sequence[float],
    last_steps: Sequence[float],
    places: Sequence[float | None],
    within: tuple[float, float],
) -> tuple[int, int] | None:
    """Returns a range of steps that has all points within the first and the last place; None if there are none.

    The columns are of the buckets of a series, in order; the points of each lie between the place of the bucket
    before it and its own.
    """
    first, last = within
    passing = [
        index
        for index, (start, end) in enumerate(zip([*places[:1], *places], places, strict=False))
        if start is not None and end is not None and min(start, end) <= last and max(start, end) >= first
    ]
    return (int(first_steps[passing[0]]), int(last_steps[passing[-1]])) if passing else None


def origin(view: View, trial_id: int, x: str) -> float:
    """Returns the place of a trial's beginning on the axis; over time this is its creation."""
    return view.trial(trial_id).created if x == "time" else 0


def _epochs(view: View, series: Series) -> list[tuple[float, Metric | None]]:
    """Returns the epoch at the end of each bucket, of the first name that the group of the series has."""
    named = (replace(series, name=name, superseded_of=None).buckets(view, _NUM_BUCKETS) for name in ("epochs", "epoch"))
    told = next(filter(None, named), [])
    return [(bucket.last_steps, bucket.maximum) for bucket in told]


def _values(view: View, series: Series, metric: str) -> list[tuple[float, Metric | None]]:
    """Returns the mean of the metric in each bucket."""
    figures = view.figures([series.trial_id]).get(series.trial_id, {})
    pairs = ((group, name) for group, of_group in figures.items() for name in of_group)
    pair = next((pair for pair in pairs if ".".join(pair) == metric), None)
    if pair is None:
        return []
    group, name = pair
    told = replace(series, group=group, name=name).buckets(view, _NUM_BUCKETS)
    return [(bucket.last_steps, bucket.mean) for bucket in told]


def _between(points: Sequence[tuple[float, float]], steps: float) -> float:
    """Returns the value at a step, interpolated between the points; beyond them it is the nearest point's."""
    low, high = 0, len(points) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if points[middle][0] <= steps else (low, middle)
    (first, at_first), (last, at_last) = points[low], points[high]
    if last == first:
        return at_first
    part = min(1.0, max(0.0, (steps - first) / (last - first)))
    return at_first + part * (at_last - at_first)
