"""The curves of trials: the one way from records to what is drawn in a file, a terminal, a notebook or on the page."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from core_sdk._analysis.charts.horizontal_axis import Series, places, steps_within
from core_sdk._home import View
from core_sdk._home.rows import SeriesBucket

PICTURE_BUCKETS = 800
"""The number of points of a curve that can be told apart in a picture."""


@dataclass(frozen=True)
class PlacedCurve:
    """A series in buckets, with their places on a horizontal axis."""

    series: Series
    buckets: Sequence[SeriesBucket]
    x: Sequence[float | None]
    """The end of each bucket; None where it has no place. Time is in seconds since the Unix epoch."""

    def placed(self, origin: float) -> list[SeriesBucket]:
        """Returns the buckets with their places after `origin` instead of their steps, without those that have none."""
        return [
            msgspec.structs.replace(one, first_steps=x - origin, last_steps=x - origin)
            for one, x in zip(self.buckets, self.x, strict=True)
            if x is not None
        ]


def read_curves(
    view: View,
    series: Iterable[Series],
    x: str = "steps",
    num_buckets: int = PICTURE_BUCKETS,
    within: tuple[int, int] | None = None,
) -> list[PlacedCurve]:
    """Returns the curves of the series that have points, in about `num_buckets` buckets of equally many steps.

    `x` is "steps", "time", "epochs" or a metric as "group.name". `within` are the first and the last step.
    """
    return [
        PlacedCurve(one, buckets, places(view, one, buckets, x))
        for one in series
        if (buckets := one.buckets(view, num_buckets, within))
    ]


def read_finer(view: View, curve: PlacedCurve, x: str, num_buckets: int, within: tuple[float, float]) -> PlacedCurve:
    """Returns the curve with about `num_buckets` buckets in the place of those within two places on the axis."""
    for _ in range(2):  # what is wanted may be a small part of a single bucket
        buckets = curve.buckets
        starts, ends = [one.first_steps for one in buckets], [one.last_steps for one in buckets]
        steps = steps_within(starts, ends, curve.x, within)
        if steps is None:
            break
        first, end = bisect_left(ends, steps[0]), bisect_right(starts, steps[1])
        for part in read_curves(view, [curve.series], x, num_buckets, steps):
            curve = PlacedCurve(
                curve.series,
                [*buckets[:first], *part.buckets, *buckets[end:]],
                [*curve.x[:first], *part.x, *curve.x[end:]],
            )
    return curve
