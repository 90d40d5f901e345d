"""The hyperparameters of an experiment: values, and the ranges that a searcher chooses from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from core_sdk.config._section import Section, about

Count = Annotated[int, about("the number of values in a grid, which needs it; ignored elsewhere", ge=1)]


class Const(Section, frozen=True, tag_field="type", tag="const"):
    """A value that is the same in every trial. A value without a `type` is a constant, too."""

    val: Annotated[Any, about("any value; a map must be given in this form")]


class Categorical(Section, frozen=True, tag_field="type", tag="categorical"):
    """A choice of one of several values, each equally likely. A grid has all of them."""

    vals: Annotated[tuple[Any, ...], about("the values, of any kind", min_length=1)]


class _Range(Section, frozen=True):
    def _contradictions(self) -> Iterator[tuple[str, str]]:
        ends: dict[str, float] = {key: getattr(self, key) for key in ("minval", "maxval")}
        yield from ((key, f"must be finite, and is {end}") for key, end in ends.items() if not math.isfinite(end))
        if ends["minval"] >= ends["maxval"]:
            yield "minval", f"must be less than maxval, {ends['maxval']:g}, and is {ends['minval']:g}"


class Int(_Range, frozen=True, tag_field="type", tag="int"):
    """A whole number from a uniform distribution, both ends included."""

    minval: Annotated[int, about("the smallest value")]
    maxval: Annotated[int, about("the largest value")]
    count: Count | None = None


class Double(_Range, frozen=True, tag_field="type", tag="double"):
    """A number from a uniform distribution."""

    minval: Annotated[float, about("the smallest value")]
    maxval: Annotated[float, about("the upper end, which only a grid has as a value")]
    count: Count | None = None


class Log(_Range, frozen=True, tag_field="type", tag="log"):
    """A number whose logarithm is uniform: `base` to the power of a number from `minval` to `maxval`.

    `loguniform: [1e-5, 0.1]` says the same with values instead of exponents: base 10, -5 and -1.
    """

    base: Annotated[float, about("the base of the power", gt=0)]
    minval: Annotated[float, about("the smallest exponent")]
    maxval: Annotated[float, about("the largest exponent")]
    count: Count | None = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        yield from super()._contradictions()
        for key, exponent in (("minval", self.minval), ("maxval", self.maxval)):
            try:
                self.base**exponent
            except OverflowError:
                yield key, f"is an exponent, and {self.base:g}**{exponent:g} is too large; `loguniform` takes values"


Hyperparameter = Const | Categorical | Int | Double | Log


def num_points(hyperparameter: Hyperparameter) -> int | None:
    """Returns the number of values that a grid has of a hyperparameter, or None for a range without `count`."""
    match hyperparameter:
        case Const():
            return 1
        case Categorical(vals):
            return len(vals)
        case Int(minval, maxval, int(count)):
            return min(count, maxval - minval + 1)
    return hyperparameter.count


class HyperparameterSpace(msgspec.Struct, frozen=True):
    """Hyperparameters by name, in nested groups."""

    members: dict[str, Hyperparameter | HyperparameterSpace] = {}

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Hyperparameter]]:
        """Yields every hyperparameter with its names from the outermost group inwards, sorted by these names."""
        for name, member in sorted(self.members.items()):
            if isinstance(member, HyperparameterSpace):
                yield from (((name, *inner), leaf) for inner, leaf in member.leaves())
            else:
                yield (name,), member


def nested(values: Iterable[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    """Returns the hyperparameters of one trial, given a value for each leaf of a space."""
    hparams: dict[str, Any] = {}
    for path, value in values:
        group = hparams
        for name in path[:-1]:
            group = group.setdefault(name, {})
        group[path[-1]] = value
    return hparams
