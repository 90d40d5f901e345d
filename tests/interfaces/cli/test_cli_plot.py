"""A plot shows a curve's true extremes, fits the terminal, and leaves gaps where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._home.rows import SeriesBucket
from core_sdk._interfaces.render.plot import plot as plot_chart

BLANK = {" ", "⠀"}


def plot(buckets: Sequence[SeriesBucket], width: int, height: int = 12) -> list[str]:
    """Returns a chart of one curve."""
    return plot_chart(Chart("loss", [ChartCurve("trial 1", buckets)]), width=width, height=height)


def point(steps: int, value: float | None) -> SeriesBucket:
    """Returns a bucket of one value; None for NaN."""
    return SeriesBucket(
        first_steps=steps,
        last_steps=steps,
        count=1,
        minimum=value,
        maximum=value,
        mean=value,
    )


def curve(lines: list[str]) -> list[str]:
    """Returns the dots, without labels and axis."""
    return [line.partition("┤")[2] for line in lines if "┤" in line]


def columns(lines: list[str]) -> set[int]:
    """Returns the character columns in which anything is drawn."""
    return {index for row in curve(lines) for index, char in enumerate(row) if char not in BLANK}


def test_a_rising_line_rises() -> None:
    """A rising line runs from the lower left to the upper right without a gap."""
    lines = plot([point(step, float(step)) for step in range(11)], width=40, height=5)

    rows = curve(lines)
    assert columns(lines) == set(range(max(map(len, rows))))
    assert rows[0].rstrip()[:10].strip() == ""
    assert rows[-1][0] not in BLANK


def test_a_plot_fits_the_terminal() -> None:
    """Labels, curve and axis stay within the width."""
    lines = plot([point(step, -1e-300 * step) for step in range(0, 10**9, 10**7)], width=80)

    assert max(map(len, lines)) == 80


def test_the_axes_say_what_is_shown() -> None:
    """The extremes are printed at the left and the first and last steps below."""
    lines = plot([point(3, 0.25), point(77, -4.0)], width=60)

    assert lines[0].split()[0] == "0.25"
    assert "-4" in lines[-3].split("┤")[0]
    assert lines[-1].split() == ["3", "77"]


def test_nan_leaves_a_gap() -> None:
    """No line is drawn over steps whose values are NaN or infinite."""
    values = [1.0, 1.0, None, math.inf, None, 1.0, 1.0]

    lines = plot([point(step, value) for step, value in enumerate(values)], width=80, height=3)

    drawn = columns(lines)
    span = max(drawn) + 1
    assert drawn.isdisjoint(range(round(span * 0.25), round(span * 0.75)))
    assert {min(drawn), max(drawn)} <= drawn


def test_a_bucket_is_a_stroke_between_its_extremes() -> None:
    """A spike of one value among thousands is seen."""
    spike = SeriesBucket(first_steps=5, last_steps=5, count=1000, minimum=0, maximum=100, mean=0.1)

    lines = plot([point(0, 0.0), spike, point(10, 0.0)], width=40, height=6)

    assert all(row.strip() for row in curve(lines))


def test_one_value_and_extreme_values_can_be_drawn() -> None:
    """A single value and values at the limits of floats are drawn without a division error."""
    largest = 1.7976931348623157e308

    assert curve(plot([point(1, 5.0)], width=40))
    assert curve(plot([point(1, -largest), point(2, largest)], width=40))


def test_nothing_finite_is_no_plot() -> None:
    """No plot is drawn for NaN only, or for no points."""
    assert plot([point(1, None)], width=80) == []
    assert plot([], width=80) == []


def test_several_curves_are_drawn_in_letters() -> None:
    """Several curves are drawn with a letter each, which the legend explains; the first is on top where they meet."""
    rising = ChartCurve("trial 3", [point(step, float(step)) for step in range(11)])
    falling = ChartCurve("trial 5", [point(step, 10.0 - step) for step in range(11)])

    lines = plot_chart(Chart("loss", [rising, falling]), width=40, height=5)

    assert lines[-2:] == ["  A trial 3", "  B trial 5"]
    assert curve(lines)[0].strip().startswith("B")
    assert curve(lines)[0].strip().endswith("A")
    assert set("".join(curve(lines))) == {" ", "A", "B"}


def test_resume_points_are_marked_on_the_axis() -> None:
    """Resume points are marked on the axis and explained below it."""
    chart = Chart("loss", [ChartCurve("trial 1", [point(step, 1.0) for step in range(11)])], marks=[5])

    lines = plot_chart(chart, width=40)

    axis = next(line for line in lines if "└" in line).partition("└")[2]
    assert abs(axis.index("╪") - len(axis) / 2) <= 1
    assert lines[-1].strip() == "╪ resumed at 5"
