"""The contents of a chart, apart from how it is drawn."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from core_sdk._home.rows import SeriesBucket


@dataclass(frozen=True)
class ChartCurve:
    """A curve of a chart. Curves with the same label look alike."""

    label: str
    buckets: Sequence[SeriesBucket]
    is_cut: bool = False
    """Whether the curve is drawn in grey, with a cross at its end."""


@dataclass(frozen=True)
class Chart:
    """Curves that share their axes. Where curves overlap, the first one is visible."""

    title: str
    curves: Sequence[ChartCurve]
    marks: Sequence[int] = ()
    mark_label: str = "resumed"
    """The label of the marked steps, which says what happened there."""

    @property
    def labels(self) -> list[str]:
        """The different labels, in the order of the curves."""
        return list(dict.fromkeys(curve.label for curve in self.curves))

    @functools.cached_property
    def strokes(self) -> list[Stroke]:
        found = (stroke(bucket) for curve in self.curves for bucket in curve.buckets)
        return [one for one in found if one is not None]

    @property
    def step_range(self) -> tuple[float, float]:
        """The first step and the last one, also if their values cannot be drawn."""
        buckets = [bucket for curve in self.curves for bucket in curve.buckets]
        return min(bucket.first_steps for bucket in buckets), max(bucket.last_steps for bucket in buckets)

    @property
    def value_range(self) -> tuple[float, float]:
        return min(one.low for one in self.strokes), max(one.high for one in self.strokes)


@dataclass(frozen=True)
class Stroke:
    """A bucket that can be drawn: a vertical line from its minimum to its maximum."""

    steps: float
    low: float
    mean: float
    high: float


def stroke(bucket: SeriesBucket) -> Stroke | None:
    """Returns how a bucket is drawn, or None if a value is infinite or all are NaN, which interrupts the curve."""
    low, mean, high = bucket.minimum, bucket.mean, bucket.maximum
    if low is None or mean is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return Stroke((bucket.first_steps + bucket.last_steps) / 2, float(low), mean, float(high))


def fraction(value: float, low: float, high: float) -> float:
    """Returns the position of `value` between `low` (0) and `high` (1)."""
    # The numbers are halved, since the difference of two finite numbers can be infinite.
    span = high / 2 - low / 2
    return 0.5 if span == 0 else min(1.0, max(0.0, (value / 2 - low / 2) / span))
