"""Formulas of metrics: their values and curves, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core_sdk._analysis.charts.curves import PlacedCurve
from core_sdk._analysis.charts.formula import Formula, FormulaError, formula_curves, read_formula
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._home.rows import SeriesBucket

TABLE = json.loads((Path(__file__).parent / "formulas.json").read_text())


@pytest.mark.parametrize(("text", "expected"), TABLE["values"])
def test_a_formula_has_a_value(text: str, expected: float | str) -> None:
    """What has no value is NaN, as in a browser."""
    formula = read_formula(text, TABLE["metrics"])

    value = formula.value([TABLE["reported"][name] for name in formula.names])

    assert value == pytest.approx(float(expected), nan_ok=True)


@pytest.mark.parametrize(("text", "place", "message"), TABLE["wrong"])
def test_a_wrong_formula_has_a_problem_at_a_place(text: str, place: int, message: str) -> None:
    """The words and the place are those that the page and the commands show."""
    with pytest.raises(FormulaError) as caught:
        read_formula(text, TABLE["metrics"])

    assert (caught.value.problem, caught.value.place) == (message, place)


@pytest.mark.parametrize("text", [f"{'(' * 490}loss{')' * 4}", f"{'-' * 490}loss", f"{'2^' * 200}loss"])
def test_a_formula_that_python_cannot_nest_is_refused(text: str) -> None:
    """What would exhaust Python's stack, as it is read or computed, is a problem of the formula."""
    with pytest.raises(FormulaError, match="too many parentheses"):
        read_formula(text, ["training.loss"])


def test_the_longest_sum_can_be_computed() -> None:
    """A formula of as many characters as possible has a value, also where Python's stack is rather full."""
    text = "+".join(["l"] * 250)

    def value(depth: int) -> float:
        return value(depth - 1) if depth else read_formula(text, ["training.l"]).value([2.0])

    assert value(100) == 500


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
