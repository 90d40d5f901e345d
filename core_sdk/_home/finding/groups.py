"""Groups of trials that have the same values, and what is typical of each group.

Pure functions of values. A name is one of the names in `facts`: a hyperparameter, `label`, which stands for all labels
of a trial, or any other value.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import msgspec

from core_sdk._ground.records import Metric, SearcherMetric, strict_json
from core_sdk._home.finding.facts import Facts, differing_first, metric_named, titles

OTHER_NAMES = ("label", "experiment", "state")
"""The facts by which trials can be grouped, besides their hyperparameters."""


class TrialGroup(msgspec.Struct, frozen=True):
    """The trials that have the same values."""

    values: tuple[Any, ...]
    """A value for each name; None if the trials have no such value. Labels are one text."""
    members: Sequence[Facts]

    @property
    def trial_ids(self) -> list[int]:
        return [one.row.trial_id for one in self.members]

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """The typical last value of each metric `group.name` that has finite ones."""
        found = {name: aggregate(one.metric(name) for one in self.members) for name in metric_names(self.members)}
        return {name: figures for name, figures in found.items() if figures}


class Aggregate(msgspec.Struct, frozen=True):
    """Typical figures of the values of a group. NaN and infinite values are left out."""

    mean: float
    std: float | None
    """The standard deviation of a sample; None for a single value."""
    minimum: float
    maximum: float
    count: int
    num_left_out: int

    @property
    def sem(self) -> float | None:
        """The standard error of the mean; None for a single value."""
        return None if self.std is None else self.std / math.sqrt(self.count)


class GroupBest(msgspec.Struct, frozen=True):
    trial_id: int
    value: Metric


def group_trials(found: Iterable[Facts], names: Sequence[str]) -> list[TrialGroup]:
    """Returns the groups in the order of their values, each with its trials in the order of their ids."""
    by_key: dict[tuple[Hashable, ...], list[Facts]] = {}
    for one in sorted(found, key=lambda one: one.row.trial_id):
        by_key.setdefault(tuple(map(_key, _values(one, names))), []).append(one)
    groups = [TrialGroup(_values(members[0], names), members) for members in by_key.values()]
    return sorted(groups, key=lambda group: tuple(map(_place, group.values)))


def group_names(found: Sequence[Facts]) -> list[str]:
    """Returns the names by which the trials can be grouped: first the hyperparameters in which they differ."""
    differing, same = differing_first([one.hparams for one in found])
    shown = titles(found)
    return [
        *(shown[f"hparams.{name}"] for name in differing),
        *OTHER_NAMES,
        *(shown[f"hparams.{name}"] for name in same),
    ]


def aggregate(values: Iterable[Any]) -> Aggregate | None:
    """Returns what is typical of the values, or None if none is a finite number."""
    given = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    finite = [value for value in given if math.isfinite(value)]
    if not finite:
        return None
    return Aggregate(
        mean(finite),
        deviation(finite) if len(finite) > 1 else None,
        min(finite),
        max(finite),
        len(finite),
        len(given) - len(finite),
    )


def best_of(members: Iterable[Facts], metric: SearcherMetric | None) -> GroupBest | None:
    """Returns the trial with the best value of a metric "group.name"; None if no value is finite."""
    if metric is None:
        return None
    values = {one.row.trial_id: one.metric(metric.best_name) for one in members}
    trial_id = next(iter(metric.best_first(sorted(values), values.get)), None)
    return None if trial_id is None else GroupBest(trial_id, values[trial_id])


def default_metric(found: Sequence[Facts], recorded: Iterable[SearcherMetric | None]) -> SearcherMetric | None:
    """Returns the `common_metric`, or else the first metric, validation first, of which smaller values are better."""
    if (metric := common_metric(found, recorded)) is not None:
        return metric
    metrics = metric_names(found)
    return SearcherMetric(name=metrics[0]) if metrics else None


def common_metric(found: Iterable[Facts], recorded: Iterable[SearcherMetric | None]) -> SearcherMetric | None:
    """Returns the metric that all experiments of these trials have recorded, as far as they have; None otherwise."""
    distinct = {(one.name, one.smaller_is_better): one for one in recorded if one is not None}
    return grouped_metric(found, next(iter(distinct.values()))) if len(distinct) == 1 else None


def grouped_metric(found: Iterable[Facts], metric: SearcherMetric) -> SearcherMetric:
    """Returns the metric with its group in its name: the group in which these trials have reported it."""
    known = {pair for one in found if (pair := one.metric_named(metric.name)) is not None}
    group, name = metric_named(metric.name, known, metric.group) or (
        "validation",
        metric.name.removeprefix("validation."),
    )
    return msgspec.structs.replace(metric, name=f"{group}.{name}")


def metric_names(found: Iterable[Facts]) -> list[str]:
    """Returns the metrics of the trials as "group.name": validation metrics first, then training metrics.

    Of a group, those come first that most trials have.
    """
    counts = Counter((group, name) for one in found for group, metrics in one.metrics.items() for name in metrics)
    in_order = sorted(counts, key=lambda pair: (pair[0] != "validation", pair[0] != "training", -counts[pair]))
    return [f"{group}.{name}" for group, name in in_order]


def is_named(metric: str, names: Iterable[str]) -> bool:
    """Returns whether one of the names means the metric "group.name", with its group or without it.

    A name between slashes is a regular expression, which has a match in the metric: "/^training.*loss$/". Raises
    `ValueError` if it is none.
    """
    return any(metric == name or metric.endswith(f".{name}") or has_match(metric, name) for name in names)


def has_match(metric: str, name: str) -> bool:
    """Returns whether the name is a regular expression between slashes that has a match in the metric.

    Raises `ValueError` for what is no regular expression.
    """
    if len(name) < 3 or not name.startswith("/") or not name.endswith("/"):
        return False
    try:
        return re.search(name[1:-1], metric, re.IGNORECASE) is not None
    except re.error as error:
        raise ValueError(f"{name} is no regular expression: {error}") from None


def mean(values: Sequence[float]) -> float:
    """Returns the mean of finite values, which lies between the smallest and the largest of them."""
    # Each value is divided, since the sum of finite numbers can be infinite.
    found = math.fsum(value / len(values) for value in values)
    return min(max(found, min(values)), max(values))


def deviation(values: Sequence[float]) -> float:
    """Returns the standard deviation of a sample of at least two finite values."""
    centre = mean(values)
    return math.hypot(*sorted(value - centre for value in values)) / math.sqrt(len(values) - 1)


def group_labels(groups: Sequence[TrialGroup], names: Sequence[str]) -> list[str]:
    """Returns what each group is called: its values of the names in which the groups differ, or of all names."""
    texts = [[value_text(value) for value in group.values] for group in groups]
    differing = [index for index in range(len(names)) if len({text[index] for text in texts}) > 1]
    shown = differing or range(len(names))
    return [", ".join(f"{names[index]} {text[index]}" for index in shown) or "all" for text in texts]


def value_text(value: Any) -> str:
    """Returns a value of a group as people read it."""
    if value is None or value == "":
        return "none"
    return value if isinstance(value, str) else strict_json(value)


def _values(one: Facts, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_value(one, name) for name in names)


def _value(one: Facts, name: str) -> Any:
    value = one.value(name)
    return ", ".join(sorted(value)) or None if isinstance(value, tuple) else value


def _key(value: Any) -> Hashable:
    """Returns a key that is the same for equal values. NaN is equal to itself here, and True is not 1."""
    return (isinstance(value, bool), value) if value == value else "NaN"


def _place(value: Any) -> tuple[int, float, str]:
    """Returns the key by which values are sorted: numbers, then texts, then those that are missing."""
    if isinstance(value, int | float) and not math.isnan(value):
        return 0, value, ""
    return (2, 0.0, "") if value is None else (1, 0.0, value_text(value))
