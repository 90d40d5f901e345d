"""A chart in the terminal. One curve is drawn in Braille dots, two by four a character; several are drawn in letters.

Not a library: the one that fits, plotext, keeps the figure in module state, colours what was to be plain, and adds more
to the start of a command than everything else here.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from core_sdk._analysis.charts.chart import Chart, Stroke, fraction, stroke
from core_sdk._ground.records import format_number

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_LETTERS = string.ascii_uppercase + string.ascii_lowercase


def num_buckets(width: int) -> int:
    """Returns the number of buckets that a plot of this width can tell apart."""
    return max(2, 2 * width)


def plot(chart: Chart, *, width: int, height: int = 12) -> list[str]:
    """Returns lines of at most `width` columns, without the title; none if there is no finite value.

    A bucket is a vertical stroke from its true minimum to its true maximum; where values are NaN or infinite the curve
    is interrupted.
    """
    if not chart.strokes:
        return []
    low, high = chart.value_range
    labels = _labels(low, high, height)
    label_width = max(len(label) for label in labels)
    canvases = [_Canvas(width - label_width - 2, height, chart.step_range, (low, high)) for _ in chart.curves]
    for canvas, curve in zip(canvases, chart.curves, strict=True):
        canvas.draw([stroke(bucket) for bucket in curve.buckets])
    rows = canvases[0].rows() if len(canvases) == 1 else _in_letters(canvases, _letters(chart))
    lines = [f"{label:>{label_width}} ┤{row}" for label, row in zip(labels, rows, strict=True)]
    return [*lines, *_axis(chart, label_width, canvases[0]), *_legend(chart)]


class _Canvas:
    def __init__(
        self, num_columns: int, num_rows: int, x_range: tuple[float, float], y_range: tuple[float, float]
    ) -> None:
        self.num_columns = max(num_columns, 10)
        self.cells = [[_BLANK] * self.num_columns for _ in range(num_rows)]
        self._x_range = x_range
        self._y_range = y_range

    def draw(self, strokes: Sequence[Stroke | None]) -> None:
        previous: tuple[int, int] | None = None
        for one in strokes:
            if one is None:
                previous = None
                continue
            x = self.x(one.steps)
            here = (x, self._y(one.mean))
            self._line((x, self._y(one.low)), (x, self._y(one.high)))
            self._line(previous or here, here)
            previous = here

    def rows(self) -> list[str]:
        return ["".join(map(chr, row)).replace(chr(_BLANK), " ").rstrip() for row in self.cells]

    def x(self, steps: float) -> int:
        """Returns the column of dots at which the step is drawn."""
        return round(fraction(steps, *self._x_range) * (2 * self.num_columns - 1))

    def _y(self, value: float) -> int:
        return round((1 - fraction(value, *self._y_range)) * (4 * len(self.cells) - 1))

    def _line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        num_dots = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
        for dot in range(num_dots + 1):
            x = start[0] + round((end[0] - start[0]) * dot / num_dots)
            y = start[1] + round((end[1] - start[1]) * dot / num_dots)
            self.cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]


def _in_letters(canvases: Sequence[_Canvas], letters: Sequence[str]) -> list[str]:
    """Returns rows in which each curve is drawn in its letter; where curves meet, the first one is shown."""

    def letter(row: int, column: int) -> str:
        drawn = (index for index, canvas in enumerate(canvases) if canvas.cells[row][column] != _BLANK)
        return next((letters[index] for index in drawn), " ")

    num_rows, num_columns = len(canvases[0].cells), canvases[0].num_columns
    return ["".join(letter(row, column) for column in range(num_columns)).rstrip() for row in range(num_rows)]


def _letters(chart: Chart) -> list[str]:
    """Returns the letter of each curve."""
    labels = chart.labels
    return [_LETTERS[labels.index(curve.label) % len(_LETTERS)] for curve in chart.curves]


def _labels(low: float, high: float, height: int) -> list[str]:
    labels = [""] * height
    labels[height // 2] = format_number(low / 2 + high / 2)
    if low != high:
        labels[0], labels[-1] = format_number(high), format_number(low)
    return labels


def _axis(chart: Chart, label_width: int, canvas: _Canvas) -> list[str]:
    indent = " " * (label_width + 1)
    first, last = map(format_number, chart.step_range)
    marked = {canvas.x(steps) // 2 for steps in chart.marks}
    line = "".join("╪" if column in marked else "─" for column in range(canvas.num_columns))
    gap = max(1, canvas.num_columns - len(first) - len(last))
    marks = [f"{indent} ╪ {chart.mark_label} at {', '.join(map(str, chart.marks))}"] if chart.marks else []
    return [f"{indent}└{line}", f"{indent} {first}{' ' * gap}{last}", *marks]


def _legend(chart: Chart) -> list[str]:
    if len(chart.curves) == 1:
        return []
    letters = dict(zip((curve.label for curve in chart.curves), _letters(chart), strict=True))
    return [f"  {letter} {label}" for label, letter in letters.items()]
