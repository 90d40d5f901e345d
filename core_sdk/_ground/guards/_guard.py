"""A guard, as users write it: in `init(guards=[…])`, in the configuration of an experiment, or as `run --guard`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from core_sdk._ground.decoding import convert
from core_sdk._ground.guards._rules import AboveMedian, Bound, NotBetter, NotFinite, RobustScore, Rule
from core_sdk._ground.sections import Section, about

GuardAction = Literal["alert", "stop", "go_back"]

_KNOWN_GROUPS = ("training", "validation")
_RULES = ("not_finite", "above_median", "above_deviations", "above", "below", "not_better_for")


class Guard(Section, frozen=True, kw_only=True):
    """A rule about a metric of which the chief reports values, and what is done when one breaks it."""

    metric: Annotated[
        str, about("`loss` of the training, `validation.loss`, or `GROUP/NAME` of any group", min_length=1)
    ]
    not_finite: Annotated[bool, about("trouble is NaN, or an infinity")] = False
    above_median: (
        Annotated[float, about("trouble is a value above so many times the median of the last ones", gt=0)] | None
    ) = None
    above_deviations: (
        Annotated[float, about("trouble is a value so many standard deviations above that median", gt=0)] | None
    ) = None
    above: Annotated[float, about("trouble is a value above this one")] | None = None
    below: Annotated[float, about("trouble is a value below this one")] | None = None
    not_better_for: Annotated[int, about("trouble is a best value that is older than so many steps", ge=1)] | None = (
        None
    )
    larger_is_better: Annotated[bool, about("how `not_better_for` compares values")] = False
    last: Annotated[int, about("the number of values whose median is taken", ge=5)] = 50
    action: Annotated[GuardAction, about("tell, stop, or go back to the newest checkpoint before the trouble")] = (
        "alert"
    )
    skip_batches: (
        Annotated[int, about("going back leaves out the batches up to the trouble, and so many more", ge=0)] | None
    ) = None
    reshuffle: Annotated[bool, about("going back takes another seed for the order of the data")] = False
    max_times: Annotated[int, about("how often it goes back in one trial; after that it stops", ge=1)] = 3

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        given = [name for name in _RULES if getattr(self, name) not in (None, False)]
        if len(given) != 1 and given != ["above", "below"]:
            found = f"has {' and '.join(given)}" if given else "has no rule"
            yield "metric", f"{found}: give one of {', '.join(_RULES)}"
        if self.action != "go_back" and (self.skip_batches is not None or self.reshuffle):
            yield "action", "is not go_back, which skip_batches and reshuffle are about"


def place_of(guard: Guard) -> tuple[str, str]:
    """Returns the group of the guard's metric, and its name there."""
    group, slash, name = guard.metric.partition("/")
    if slash:
        return group, name
    group, _, name = guard.metric.partition(".")
    return (group, name) if group in _KNOWN_GROUPS and name else ("training", guard.metric)


def values_of(guard: Guard) -> dict[str, Any]:
    """Returns the fields that are not the default, as JSON."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Guard)}
    return {name: value for name, default in defaults.items() if (value := getattr(guard, name)) != default}


def words_of(guard: Guard) -> str:
    """Returns the guard as `run --guard` takes it, which names it in records."""
    options = [(name, value) for name, value in values_of(guard).items() if name != "metric"]
    return " ".join(
        (guard.metric, *(name if value is True else f"{name}={_written(value)}" for name, value in options))
    )


def rule_of(guard: Guard) -> Rule:
    """Returns the guard's rule, which has seen nothing."""
    if guard.not_finite:
        return NotFinite()
    if guard.above_median is not None:
        return AboveMedian(guard.above_median, guard.last)
    if guard.above_deviations is not None:
        return RobustScore(guard.above_deviations, guard.last)
    if guard.not_better_for is not None:
        return NotBetter(guard.not_better_for, smaller_is_better=not guard.larger_is_better)
    return Bound(below=guard.below, above=guard.above)


def parse_guard(text: str) -> Guard:
    """Returns the guard that words say: `loss above_median=12 action=go_back`. Raises `ValueError`."""
    metric, *words = re.split(r"[\s,]+", text.strip())
    values = dict(word.partition("=")[::2] for word in words)
    if unknown := next((name for name in values if name not in Guard.__struct_fields__), None):
        raise ValueError(f"{unknown!r} is no option of a guard; there are {', '.join(Guard.__struct_fields__)}")
    return _converted({"metric": metric} | {name: value or "true" for name, value in values.items()}, is_strict=False)


def checked_guards(guards: Sequence[Any]) -> tuple[Guard, ...]:
    """Returns guards of which each was given as a `Guard` or as a map. Raises `ValueError`, or `TypeError`."""
    if isinstance(guards, (str, bytes, Mapping, Guard)):
        raise TypeError(f"guards is {guards!r}; it must be a list of guards")
    return tuple(_converted(msgspec.to_builtins(each), is_strict=True) for each in guards)


def _converted(values: Any, *, is_strict: bool) -> Guard:
    try:
        return convert(values, Guard, strict=is_strict)
    except msgspec.ValidationError as error:
        raise ValueError(f"a guard cannot be read: {error}") from error


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
