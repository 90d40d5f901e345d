"""Formulas of metrics: the values and the problems that the page's tests expect, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core_sdk._analysis.charts.curves import PlacedCurve
from core_sdk._analysis.charts.formula import Formula, FormulaError, formula_curves, read_formula
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._home.rows import SeriesBucket

TABLE = json.loads((Path(__file__).parents[2] / "page" / "formulas.json").read_text())


@pytest.mark.parametrize(("text", "expected"), TABLE["values"])
def test_a_formula_has_the_value_that_it_has_on_the_page(text: str, expected: float | str) -> None:
    """The table of values is that of the page's tests."""
    formula = read_formula(text, TABLE["metrics"])

    value = formula.value([TABLE["reported"][name] for name in formula.names])

    assert value == pytest.approx(float(expected), nan_ok=True)


@pytest.mark.parametrize(("text", "place", "message"), TABLE["wrong"])
def test_a_wrong_formula_has_the_problem_that_it_has_on_the_page(text: str, place: int, message: str) -> None:
    """The table of problems is that of the page's tests, too."""
    with pytest.raises(FormulaError) as caught:
        read_formula(text, TABLE["metrics"])

    assert (caught.value.problem, caught.value.place) == (message, place)


def test_a_formula_that_python_cannot_nest_is_refused() -> None:
    """Parentheses that would exhaust Python's stack are a problem of the formula."""
    with pytest.raises(FormulaError, match="too many parentheses"):
        read_formula(f"{'(' * 490}loss{')' * 4}", ["training.loss"])


def test_a_formula_has_the_points_of_the_metric_with_the_fewest() -> None:
    """A point of the rarer metric is joined with the bucket of the other that holds its step; others are left out."""
    ends = ((1, 20, 0), (21, 30, 1), (31, 55, 2), (56, 60, 3))
    often = [SeriesBucket(first, last, last - first + 1, 0, 9, mean) for first, last, mean in ends]
    rarely = [SeriesBucket(step, step, 1, mean, mean, mean) for step, mean in ((25, 4), (50, None), (61, 1))]

    [curve] = formula_curves([_curve("lr", rarely), _curve("loss", often)], _formula("lr - loss"))

    first, second = curve.buckets
    assert (curve.series.name, curve.x) == ("lr - loss", [125, 150])
    assert (first.first_steps, first.last_steps, first.count, first.mean) == (25, 25, 10, 3)
    assert second.mean is None


def test_a_formula_has_a_curve_for_each_attempt_and_rank() -> None:
    """Metrics of different attempts or ranks are not joined."""
    of_first = [_curve("loss", _POINT), _curve("lr", _POINT)]
    of_others = [_curve("loss", _POINT, rank=1), _curve("loss", _POINT, superseded_of=1)]
    of_rank = [_curve("loss", _POINT, rank=2), _curve("lr", _POINT, rank=2)]

    found = formula_curves([*of_first, *of_others, *of_rank], _formula("loss / lr"))

    assert [(one.series.rank, one.series.superseded_of) for one in found] == [(None, None), (2, None)]


_POINT = [SeriesBucket(1, 1, 1, 2, 2, 2)]


def _formula(text: str) -> Formula:
    return read_formula(text, ["training.loss", "training.lr"])


def _curve(name: str, buckets: list[SeriesBucket], **which: int) -> PlacedCurve:
    series = Series(1, "training", name, **which)
    return PlacedCurve(series, buckets, [bucket.last_steps + 100 for bucket in buckets])
