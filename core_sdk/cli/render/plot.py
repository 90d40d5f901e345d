"""A curve in the terminal, drawn in Braille dots, two by four a character.

Not a library: the one that fits, plotext, keeps the figure in module state, colours what was to be plain, and adds more
to the start of a command than everything else here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core_sdk.cli.render.text import format_number
from core_sdk.tracking.rows import Bucket

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


def num_buckets(width: int) -> int:
    """As many as a plot of this width can show apart."""
    return max(2, 2 * width)


def plot(buckets: Sequence[Bucket], *, width: int, height: int = 12) -> list[str]:
    """Lines of at most `width` columns; empty if no bucket holds a finite value.

    A bucket is a vertical stroke from its true minimum to its true maximum; where values are NaN or infinite the curve
    is interrupted.
    """
    strokes = [_stroke(bucket) for bucket in buckets]
    drawn = [stroke for stroke in strokes if stroke is not None]
    if not drawn:
        return []
    first, last = buckets[0].first_steps, buckets[-1].last_steps
    low, high = min(stroke.low for stroke in drawn), max(stroke.high for stroke in drawn)
    labels = _labels(low, high, height)
    label_width = max(len(label) for label in labels)
    canvas = _Canvas(width - label_width - 2, height, (first, last), (low, high))
    canvas.draw(strokes)
    rows = [f"{label:>{label_width}} ┤{row}" for label, row in zip(labels, canvas.rows(), strict=True)]
    return [*rows, *_axis(first, last, label_width, canvas.num_columns)]


@dataclass(frozen=True)
class _Stroke:
    steps: float
    low: float
    mean: float
    high: float


def _stroke(bucket: Bucket) -> _Stroke | None:
    """None where the curve is interrupted."""
    low, mean, high = bucket.minimum, bucket.mean, bucket.maximum
    if low is None or mean is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    return _Stroke((bucket.first_steps + bucket.last_steps) / 2, float(low), mean, float(high))


class _Canvas:
    def __init__(
        self, num_columns: int, num_rows: int, x_range: tuple[float, float], y_range: tuple[float, float]
    ) -> None:
        self.num_columns = max(num_columns, 10)
        self._cells = [[_BLANK] * self.num_columns for _ in range(num_rows)]
        self._x_range = x_range
        self._y_range = y_range

    def draw(self, strokes: Sequence[_Stroke | None]) -> None:
        previous: tuple[int, int] | None = None
        for stroke in strokes:
            if stroke is None:
                previous = None
                continue
            x = self._x(stroke.steps)
            here = (x, self._y(stroke.mean))
            self._line((x, self._y(stroke.low)), (x, self._y(stroke.high)))
            self._line(previous or here, here)
            previous = here

    def rows(self) -> list[str]:
        return ["".join(map(chr, row)).replace(chr(_BLANK), " ").rstrip() for row in self._cells]

    def _x(self, steps: float) -> int:
        return round(_fraction(steps, *self._x_range) * (2 * self.num_columns - 1))

    def _y(self, value: float) -> int:
        return round((1 - _fraction(value, *self._y_range)) * (4 * len(self._cells) - 1))

    def _line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        num_dots = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for dot in range(num_dots + 1):
            x = start[0] + round((end[0] - start[0]) * dot / num_dots)
            y = start[1] + round((end[1] - start[1]) * dot / num_dots)
            self._cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _fraction(value: float, low: float, high: float) -> float:
    # Halves, since the span of two finite numbers can be infinite.
    span = high / 2 - low / 2
    return 0.5 if span == 0 else min(1.0, max(0.0, (value / 2 - low / 2) / span))


def _labels(low: float, high: float, height: int) -> list[str]:
    labels = [""] * height
    labels[height // 2] = format_number(low / 2 + high / 2)
    if low != high:
        labels[0], labels[-1] = format_number(high), format_number(low)
    return labels


def _axis(first_steps: int, last_steps: int, label_width: int, num_columns: int) -> list[str]:
    indent = " " * (label_width + 1)
    first, last = str(first_steps), str(last_steps)
    gap = max(1, num_columns - len(first) - len(last))
    return [f"{indent}└{'─' * num_columns}", f"{indent} {first}{' ' * gap}{last}"]
