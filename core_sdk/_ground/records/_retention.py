"""The keys of an experiment configuration's `checkpoint_storage`, and its policy for keeping checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Self, TypeVar

import msgspec

from core_sdk._ground.records._values import MAX_INT, Metric

_T = TypeVar("_T")


class KeepEvery(msgspec.Struct, frozen=True, omit_defaults=True):
    """Keeps the first checkpoint at or after each multiple of so many steps, or of so many hours of a trial, for ever.

    Use `checked` for values from outside.
    """

    steps: int | None = None
    hours: float | None = None
    """They are counted from the beginning of the trial's first attempt."""

    @classmethod
    def checked(cls, given: Any) -> Self:
        """Returns the rule that a mapping states. Raises `ValueError` for anything else."""
        if problem := cls.problem(given):
            raise ValueError(f"keep_every {problem}")
        return cls(**given)

    @staticmethod
    def problem(given: object) -> str:
        """Returns what a rule must be if this is none; else an empty text."""
        unit, number = next(iter(given.items())) if isinstance(given, Mapping) and len(given) == 1 else ("", 0)
        is_number = type(number) is int or (type(number) is float and unit == "hours")
        if unit in ("steps", "hours") and is_number and 0 < number < MAX_INT:
            return ""
        return f"must be {{steps: N}} with a whole number, or {{hours: N}}, N above 0, and is {given!r}"

    def firsts(self, stored: Iterable[tuple[str, int, float]]) -> dict[str, str]:
        """Returns the reasons for which checkpoints of a trial are kept, by storage id.

        `stored` has the storage id, `steps_completed` and the hours of each, in the order in which they were stored.
        Which ones are kept does not depend on which others have been deleted by the rule before: the first of an
        interval stays the first.
        """
        unit, width = ("steps", self.steps) if self.steps is not None else ("hours", self.hours or math.inf)
        found: dict[int, tuple[str, str]] = {}
        for storage_id, steps, hours in stored:
            index = int((steps if unit == "steps" else hours) // width)
            if index > 0:
                found.setdefault(index, (storage_id, f"first since {round(index * width, 6):,} {unit}"))
        return dict(found.values())


class RetentionPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """The checkpoints to keep: so many of them, and those at intervals.

    The defaults are the same as in an experiment configuration. Use `checked` for values from outside.
    """

    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1
    keep_every: KeepEvery | None = None

    @classmethod
    def checked(cls, config: Mapping[str, Any]) -> Self:
        """Returns the policy in `config`, which may have other keys, too. A value of None means the default.

        Raises `ValueError` or `TypeError` naming the bad key.
        """
        given = {key: config[key] for key in RETENTION_KEYS if config.get(key) is not None}
        every = given.pop("keep_every", None)
        for key, value in given.items():
            _check_number(key, value)
        return cls(**given, keep_every=None if every is None else KeepEvery.checked(every))


class SearcherMetric(msgspec.Struct, kw_only=True, frozen=True):
    """The metric that says what is best. Whoever ranks trials, reports or checkpoints asks it.

    Only finite numbers can be the best: NaN and the infinities are worse than all others. Of equal values the one of
    the earlier trial is better, and within a trial the earlier one.
    """

    name: str
    """With its group or without it: "loss", "validation.loss"."""
    smaller_is_better: bool = True
    group: str | None = None
    """The group in which it is reported, such as "validation" for a search; None means any, validation first."""
    writer: str | None = None
    """The writer whose validations count, not those of the trials' scripts."""

    @classmethod
    def configured(cls, searcher: Any) -> Self | None:
        """Returns the metric in the `searcher` of an experiment configuration, or None if it names none."""
        if not isinstance(searcher, Mapping) or not isinstance(name := searcher.get("metric"), str):
            return None
        smaller_is_better, writer = bool(searcher.get("smaller_is_better", True)), searcher.get("writer")
        return cls(name=name, smaller_is_better=smaller_is_better, group="validation", writer=writer)

    @classmethod
    def named(cls, best_name: str) -> Self:
        """Returns the metric with this `best_name`. Raises `ValueError`."""
        extreme, _, name = best_name.partition(".")
        if extreme not in ("min", "max") or not name:
            raise ValueError(f"{best_name!r} does not say which trial is best: give min.METRIC or max.METRIC")
        return cls(name=name, smaller_is_better=extreme == "min")

    @property
    def best_name(self) -> str:
        """The name of a trial's best value: min.loss, max.accuracy."""
        return f"{'min' if self.smaller_is_better else 'max'}.{self.name}"

    def of(self, validation: Mapping[str, Metric]) -> Metric | None:
        """Returns the value of this metric among those of a validation; None if it has none."""
        return validation.get(self.name, validation.get(self.name.removeprefix("validation.")))

    def best_first(self, items: Iterable[_T], value: Callable[[_T], Metric | None]) -> list[_T]:
        """Returns the items that have a finite value, the best first. `items` are in order of age, the oldest first."""
        found = [(number, item) for item in items if (number := value(item)) is not None and math.isfinite(number)]
        return [item for _, item in sorted(found, key=itemgetter(0), reverse=not self.smaller_is_better)]

    def is_better(self, value: Metric, other: Metric) -> bool:
        """Returns whether a value is better than another one that was reported before."""
        if not (math.isfinite(value) and math.isfinite(other)):
            return math.isfinite(value) and not math.isfinite(other)
        return value < other if self.smaller_is_better else value > other


def chosen_metric(
    recorded: SearcherMetric | None, name: str | None, smaller_is_better: bool | None
) -> SearcherMetric | None:
    """Returns the metric that decides: the recorded one, or the one that is named; None if there is neither.

    `smaller_is_better` says how to read it. Without that, smaller values of a metric that is not recorded are better.
    """
    is_recorded = recorded is not None and name in (None, recorded.name, f"validation.{recorded.name}")
    metric = recorded if is_recorded or name is None else SearcherMetric(name=name)
    if metric is None or smaller_is_better is None:
        return metric
    return msgspec.structs.replace(metric, smaller_is_better=smaller_is_better)


RETENTION_KEYS = RetentionPolicy.__struct_fields__
# The keys for each type. `temp_dir` is where files for a bucket are staged. Two keys of shared_fs say how a container
# mounts the directory; there is no container here.
STORAGE_KEYS = {
    "shared_fs": {"host_path", "storage_path", "container_path", "propagation"},
    "directory": {"container_path"},
    "gcs": {"bucket", "prefix", "temp_dir"},
    "s3": {"bucket", "prefix", "access_key", "secret_key", "endpoint_url", "temp_dir"},
    "azure": {"container", "connection_string", "account_url", "credential", "temp_dir"},
}


def _check_number(key: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"checkpoint_storage has {key} {value!r}; it must be an int, at least 0")
    if value < 0:
        raise ValueError(f"checkpoint_storage has {key} {value}; it must be at least 0")
