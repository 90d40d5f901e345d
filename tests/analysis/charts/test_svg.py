"""Charts as pictures: their axes, and what is asked for a paper."""

from __future__ import annotations

import re

import pytest

from core_sdk._analysis.charts.chart import Chart, ChartCurve
from core_sdk._analysis.charts.svg import Look, svg
from core_sdk._analysis.charts.ticks import round_ticks
from core_sdk._home.rows import SeriesBucket
from core_sdk.errors import NothingToDrawError


def chart(*values: float) -> Chart:
    buckets = [SeriesBucket(step, step, 1, value, value, value) for step, value in enumerate(values)]
    return Chart("training.loss", [ChartCurve("trial 1", buckets)])


@pytest.mark.parametrize(
    ("low", "high", "is_logarithmic", "ticks"),
    [
        (0.13, 0.97, False, [0.2, 0.4, 0.6, 0.8]), (-3, 3, False, [-3, -2, -1, 0, 1, 2, 3]),
        (0, 64, False, [0, 20, 40, 60]), (1e-4, 1e-1, True, [1e-4, 1e-3, 1e-2, 1e-1]),
        (0.3, 6, True, [0.5, 1, 2, 5]), (5, 5, False, [5]),
        (-1e308, 1e308, False, [-1e308, 1e308]),
    ],
)  # fmt: skip
def test_ticks_are_round_numbers(low: float, high: float, is_logarithmic: bool, ticks: list[float]) -> None:
    """Ticks are at round numbers, as on the page."""
    assert round_ticks(low, high, is_logarithmic=is_logarithmic) == ticks


def test_a_picture_has_the_title_the_labels_and_the_size_that_are_asked_for() -> None:
    """Each chart of a picture has the given title, labels and size, with names escaped as text."""
    look = Look("Loss of <A>", "updates", "cross entropy", width=600, height=400)

    picture = svg([chart(1, 2), chart(2, 3)], look)

    assert 'viewBox="0 0 600 800"' in picture
    assert picture.count("Loss of &lt;A&gt;") == picture.count(">updates<") == picture.count(">cross entropy<") == 2
    assert "training.loss" not in picture


def test_a_logarithmic_picture_leaves_out_what_is_not_above_zero() -> None:
    """A logarithmic picture leaves out values that are not above zero, and refuses a curve without others."""
    picture = svg([chart(100, 10, 1, 0, -5)], Look(is_logarithmic=True))

    (points,) = re.findall(r'<polyline points="([^"]*)"', picture)
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert len(heights) == 3
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)
    assert re.findall(r'text-anchor="end">([^<]*)<', picture) == ["1", "10", "100"]
    with pytest.raises(NothingToDrawError, match="above 0"):
        svg([chart(0, -1)], Look(is_logarithmic=True))
