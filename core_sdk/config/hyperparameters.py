"""The hyperparameters of an experiment: values, and the ranges that a searcher chooses from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from core_sdk.config._section import Section

Count = Annotated[int, Meta(ge=1, description="the number of values in a grid, which needs it; ignored elsewhere")]


class Const(Section, frozen=True, tag_field="type", tag="const"):
    """The same value in every trial. A value without a `type` is one, too."""

    val: Annotated[Any, Meta(description="any value; a map must be given in this form")]

    @property
    def num_points(self) -> int:
        return 1


class Categorical(Section, frozen=True, tag_field="type", tag="categorical"):
    """One of several values, each equally likely. A grid has all of them."""

    vals: Annotated[tuple[Any, ...], Meta(min_length=1, description="the values, of any kind")]

    @property
    def num_points(self) -> int:
        return len(self.vals)


class Int(Section, frozen=True, tag_field="type", tag="int"):
    """A whole number, uniform, both ends included."""

    minval: Annotated[int, Meta(description="the smallest value")]
    maxval: Annotated[int, Meta(description="the largest value")]
    count: Count | None = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        return _order(self.minval, self.maxval)

    @property
    def num_points(self) -> int | None:
        """The number of values in a grid; None without a `count`."""
        return None if self.count is None else min(self.count, self.maxval - self.minval + 1)


class Double(Section, frozen=True, tag_field="type", tag="double"):
    """A number, uniform."""

    minval: Annotated[float, Meta(description="the smallest value")]
    maxval: Annotated[float, Meta(description="the upper end, which only a grid has as a value")]
    count: Count | None = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        return _order(self.minval, self.maxval)

    @property
    def num_points(self) -> int | None:
        """The number of values in a grid; None without a `count`."""
        return self.count


class Log(Section, frozen=True, tag_field="type", tag="log"):
    """A number whose logarithm is uniform: `base` to the power of a number from `minval` to `maxval`.

    `loguniform: [1e-5, 0.1]` is the same by its values instead of exponents: base 10, -5 and -1.
    """

    base: Annotated[float, Meta(gt=0, description="the base of the power")]
    minval: Annotated[float, Meta(description="the smallest exponent")]
    maxval: Annotated[float, Meta(description="the largest exponent")]
    count: Count | None = None

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        yield from _order(self.minval, self.maxval)
        for key, exponent in (("minval", self.minval), ("maxval", self.maxval)):
            try:
                self.base**exponent
            except OverflowError:
                yield key, f"is an exponent, and {self.base:g}**{exponent:g} is too large; `loguniform` takes values"

    @property
    def num_points(self) -> int | None:
        """The number of values in a grid; None without a `count`."""
        return self.count


def _order(minval: float, maxval: float) -> Iterator[tuple[str, str]]:
    if not math.isfinite(minval):
        yield "minval", f"must be finite, and is {minval}"
    if not math.isfinite(maxval):
        yield "maxval", f"must be finite, and is {maxval}"
    if minval >= maxval:
        yield "minval", f"must be less than maxval, {maxval}, and is {minval}"


Hyperparameter = Const | Categorical | Int | Double | Log


class HyperparameterSpace(msgspec.Struct, frozen=True):
    """Hyperparameters by name, in nested groups."""

    members: dict[str, Hyperparameter | HyperparameterSpace] = {}

    def leaves(self) -> Iterator[tuple[tuple[str, ...], Hyperparameter]]:
        """Every hyperparameter with its names from the outermost group inwards, sorted by these names."""
        for name, member in sorted(self.members.items()):
            if isinstance(member, HyperparameterSpace):
                yield from (((name, *inner), leaf) for inner, leaf in member.leaves())
            else:
                yield (name,), member


def nested(values: Iterable[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    """The hyperparameters of one trial, from a value for each leaf of a space."""
    hparams: dict[str, Any] = {}
    for path, value in values:
        group = hparams
        for name in path[:-1]:
            group = group.setdefault(name, {})
        group[path[-1]] = value
    return hparams
