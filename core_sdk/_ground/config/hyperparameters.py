"""The hyperparameters of an experiment: values, and the ranges that a searcher chooses from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from core_sdk._ground.sections import Section, about

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


_WORDS = frozenset({"val", "vals", "minval", "maxval", "count", "base"})
_WORDS_ELSEWHERE = frozenset(
    {"value", "values", "min", "max", "low", "high", "lower", "upper", "step", "choice", "choices", "categorical"}
    | {"distribution", "dist", "uniform", "log_uniform", "int", "float", "double", "grid", "grid_search"}
)


def near_misses(hyperparameters: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields what its author probably meant to be searched, but is a constant: the names, and the words for it.

    `hyperparameters` come from a configuration for a searcher that chooses values. Each of them can be a constant
    nevertheless, in the form `{type: const, val: …}`.
    """
    for name, value in hyperparameters.items():
        if isinstance(value, list):
            yield (
                (name,),
                f"is a list, of which nothing is chosen: `{{type: categorical, vals: {_short(value)}}}` chooses one of "
                "its values, and `{type: const, val: [...]}` gives the whole list to each trial",
            )
        elif isinstance(value, dict) and value and not value.keys() & {"type", "loguniform"}:
            if value.keys() <= _WORDS | _WORDS_ELSEWHERE:
                yield (
                    (name,),
                    f"has {', '.join(value)}, but no type: `{_meant(value)}` is searched, and `{{type: const, val: "
                    "{...}}` gives the map itself to each trial",
                )
            else:
                yield from (((name, *path), problem) for path, problem in near_misses(value))


def _meant(value: Mapping[str, Any]) -> str:
    listed = [item for item in value.values() if isinstance(item, list)]
    if listed:
        return f"{{type: categorical, vals: {_short(listed[0])}}}"
    ends = [item for key, item in value.items() if key not in ("base", "count", "step")]
    numbers = sorted(item for item in ends if isinstance(item, int | float))
    if len(numbers) < 2:
        return "{type: categorical, vals: [...]}"
    kind = "int" if all(isinstance(number, int) for number in numbers) else "double"
    return f"{{type: {kind}, minval: {numbers[0]}, maxval: {numbers[-1]}}}"


def _short(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:4]))
    return f"[{shown}, ...]" if len(values) > 4 else f"[{shown}]"


def nested(values: Iterable[tuple[tuple[str, ...], Any]]) -> dict[str, Any]:
    """Returns the hyperparameters of one trial, given a value for each leaf of a space."""
    hparams: dict[str, Any] = {}
    for path, value in values:
        group = hparams
        for name in path[:-1]:
            group = group.setdefault(name, {})
        group[path[-1]] = value
    return hparams
