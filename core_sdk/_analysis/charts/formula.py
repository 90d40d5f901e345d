"""Formulas of metrics, such as "validation.loss - training.loss" or "exp(loss)".

    formula  = product (("+" | "-") product)*
    product  = signed (("*" | "/") signed)*
    signed   = "-" signed | one ("^" signed)?
    one      = NUMBER | NAME | FUNCTION "(" formula ("," formula)* ")" | "(" formula ")"

A NAME names a metric, with its group or without it. One with other characters stands in double quotes. Nothing is
evaluated as code. What has no value, such as log(-1), is NaN, as in a browser.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from core_sdk._analysis.charts.curves import PlacedCurve
from core_sdk._analysis.charts.horizontal_axis import Series
from core_sdk._home.rows import SeriesBucket

_Value = Callable[[Sequence[float]], float]
"""Returns the value of a formula for the values of its metrics."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
        |"(?P<quoted>[^"]*)"|(?P<sign>[-+*/^(),]))""",
    re.VERBOSE,
)
_STRENGTHS: Mapping[str, int] = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 4}
_SIGN_STRENGTH = 3
"""A power is stronger than the sign before it: -2^2 is -4."""
_OF_SEVERAL = ("min", "max")
_MOST_CHARACTERS = 500
_MOST_NESTED = 100
"""Fewer than Python's stack could hold, wherever it is asked for the value."""


class FormulaError(ValueError):
    """The formula cannot be understood. `place` is the position of the problem in its text."""

    def __init__(self, problem: str, text: str, place: int) -> None:
        self.problem = problem
        self.place = place
        super().__init__(f"{problem}\n  {text}\n  {' ' * place}^")


@dataclass(frozen=True)
class Formula:
    text: str
    names: Sequence[str]
    """The metrics that it needs, as "group.name"."""
    value: _Value


def read_formula(text: str, metrics: Sequence[str]) -> Formula:
    """Reads a formula of the metrics, each "group.name". Raises `FormulaError`.

    A name without its group means the one group that has it.
    """
    parser = _Parser(text, metrics)
    value = parser.formula()
    parser.expect_end()
    if not parser.names:
        raise FormulaError("There is no metric in it.", text, 0)
    return Formula(text, parser.names, value)


def formula_curves(curves: Iterable[PlacedCurve], formula: Formula) -> list[PlacedCurve]:
    """Returns the curves of a formula, given its metrics' curves, for each trial, attempt and rank that has all.

    They belong to no group. A curve has the points of the metric with the fewest, where all others have a bucket that
    holds the step. The value is computed from the means of these buckets.
    """
    members: dict[Series, dict[str, PlacedCurve]] = {}
    for curve in curves:
        computed = replace(curve.series, group="", name=formula.text)
        members.setdefault(computed, {})[f"{curve.series.group}.{curve.series.name}"] = curve
    found = (
        _computed(series, [of[name] for name in formula.names], formula.value)
        for series, of in members.items()
        if of.keys() >= set(formula.names)
    )
    return [curve for curve in found if curve.buckets]


def _computed(series: Series, members: Sequence[PlacedCurve], value: _Value) -> PlacedCurve:
    fewest = min(members, key=lambda member: len(member.buckets))
    steps = [point.last_steps for point in fewest.buckets]
    rows = zip(*(_holding(steps, member.buckets) for member in members), strict=True)
    points = [
        (_point(point, [one for one in row if one], value), x)
        for point, x, row in zip(fewest.buckets, fewest.x, rows, strict=True)
        if all(row)
    ]
    return PlacedCurve(series, [point for point, _ in points], [x for _, x in points])


def _holding(steps: Sequence[float], buckets: Sequence[SeriesBucket]) -> list[SeriesBucket | None]:
    """Returns the bucket that holds each step, or None."""
    ends = [bucket.last_steps for bucket in buckets]
    later = [*buckets, None]
    found = (later[bisect_left(ends, step)] for step in steps)
    return [one if one and one.first_steps <= step else None for one, step in zip(found, steps, strict=True)]


def _point(point: SeriesBucket, row: Sequence[SeriesBucket], value: _Value) -> SeriesBucket:
    found = value([math.nan if one.mean is None else float(one.mean) for one in row])
    height = None if math.isnan(found) else found
    count = max(one.count for one in row)
    return SeriesBucket(point.first_steps, point.last_steps, count, height, height, height)


@dataclass(frozen=True)
class _FormulaToken:
    kind: str
    text: str
    place: int


def _tokens(text: str) -> Iterator[_FormulaToken]:
    if len(text) > _MOST_CHARACTERS:
        raise FormulaError(f"A formula has at most {_MOST_CHARACTERS} characters.", text, _MOST_CHARACTERS)
    at, end = 0, len(text.rstrip())
    while at < end:
        if (found := _TOKEN.match(text, at)) is None:
            place = end - len(text[at:end].lstrip())
            raise FormulaError("Neither a number, a name nor an operator stands here.", text, place)
        kind = str(found.lastgroup)
        yield _FormulaToken("name" if kind == "quoted" else kind, found[kind], found.end() - len(found[0].lstrip()))
        at = found.end()
    yield _FormulaToken("end", "", end)


class _Parser:
    def __init__(self, text: str, metrics: Sequence[str]) -> None:
        self._text = text
        self._metrics = metrics
        self._tokens = list(_tokens(text))
        self._index = 0
        self._depth = 0
        self.names: list[str] = []

    def formula(self, weakest: int = 1) -> _Value:
        """Reads operators of this strength and stronger ones, with what stands between them."""
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise FormulaError("There are too many parentheses in each other.", self._text, 0)
        left = self._operand()
        while (strength := self._strength()) >= weakest:
            left = _applied(_OPERATORS[self._take().text], left, self.formula(min(strength + 1, _SIGN_STRENGTH)))
        self._depth -= 1
        return left

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong(f"An operator is missing before {self._next.text}.", self._next)

    def _operand(self) -> _Value:
        token = self._take()
        if token.kind == "end":
            raise self._wrong("A number or a name is missing at the end.", token)
        if token.kind == "number":
            number = float(token.text)
            return lambda _values: number
        if token.kind == "name":
            return self._call(token) if self._is_sign("(") else self._metric(token)
        if token.text == "-":
            return _applied(operator.neg, self.formula(_SIGN_STRENGTH))
        if token.text != "(":
            raise self._wrong(f"A number or a name is missing before {token.text}.", token)
        inner = self.formula()
        self._expect(")")
        return inner

    def _metric(self, token: _FormulaToken) -> _Value:
        name = token.text
        found = [name] if name in self._metrics else [one for one in self._metrics if one.partition(".")[2] == name]
        if not found:
            raise self._wrong(f"There is no metric {name}.", token)
        if len(found) > 1:
            raise self._wrong(f"{name} may be {' or '.join(found)}: write one of these.", token)
        self.names += [one for one in found if one not in self.names]
        return operator.itemgetter(self.names.index(found[0]))

    def _call(self, token: _FormulaToken) -> _Value:
        name = token.text
        if name not in _FUNCTIONS:
            raise self._wrong(f"There is no function {name}: {', '.join(_FUNCTIONS)} are known.", token)
        given: list[_Value] = []
        while not given or self._is_sign(","):
            self._take()
            given.append(self.formula())
        self._expect(")")
        if (len(given) > 1) != (name in _OF_SEVERAL):
            raise self._wrong(f"{name} takes {'several values' if name in _OF_SEVERAL else 'one value'}.", token)
        return _applied(_FUNCTIONS[name], *given)

    @property
    def _next(self) -> _FormulaToken:
        return self._tokens[self._index]

    def _take(self) -> _FormulaToken:
        token = self._next
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def _is_sign(self, sign: str) -> bool:
        return self._next.kind == "sign" and self._next.text == sign

    def _strength(self) -> int:
        return _STRENGTHS.get(self._next.text, 0) if self._next.kind == "sign" else 0

    def _expect(self, sign: str) -> None:
        if not self._is_sign(sign):
            raise self._wrong(f"{sign} is missing here.", self._next)
        self._take()

    def _wrong(self, problem: str, token: _FormulaToken) -> FormulaError:
        return FormulaError(problem, self._text, token.place)


def _applied(function: Callable[..., float], *operands: _Value) -> _Value:
    return lambda values: function(*[operand(values) for operand in operands])


def _divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


def _power(base: float, exponent: float) -> float:
    if math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent)):
        return math.nan
    try:
        return math.pow(base, exponent)
    except ValueError:
        return math.nan if base else _divide(1, math.pow(base, -exponent))
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 else math.inf


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def _sqrt(value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


def _extreme(of: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else of(values)


_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "^": _power,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "exp": _exp,
    "log": _log,
    "sqrt": _sqrt,
    "abs": abs,
    "min": lambda *values: _extreme(min, values),
    "max": lambda *values: _extreme(max, values),
}
