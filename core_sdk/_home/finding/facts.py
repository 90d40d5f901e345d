"""The values of a trial by name, in three namespaces: what it is, its hyperparameters, and its metrics.

`trial.state`, `hparams.model.layers` and `metrics.validation.loss` are qualified names, which mean the same everywhere:
in conditions, orders, columns, groups, CSV and on the page. A metric means its last value; `min.` and `max.` before it
mean its extremes, `last.` the same as nothing. A metric without its group is looked up in "validation", then in
"training", then in the other groups.

The namespace can be left out where only one thing can be meant: `state`, `model.layers`, `loss`. `problem_with` says
of a name that it means nothing in any of the trials, or more than one thing. Only the trial's own seed is always
`trial.seed`: most scripts have a hyperparameter `seed`, and that is what people mean.
"""

from __future__ import annotations

import difflib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from core_sdk._ground.records import strict_json
from core_sdk._home import View
from core_sdk._home.fields import Field, declared, titled
from core_sdk._home.rows import Figures, TrialRow

_FIRST_GROUPS = ("validation", "training")
_FIGURES: Mapping[str, Callable[[Figures], Any]] = {
    "last.": attrgetter("last"),
    "min.": attrgetter("minimum"),
    "max.": attrgetter("maximum"),
}
_ABSENT: Any = object()
_TRIAL: Mapping[str, Callable[[TrialRow], Any]] = {
    **{field.name: attrgetter(field.name) for field in declared(TrialRow)},
    **{field.column.removeprefix("trial."): attrgetter(field.name) for field in titled(TrialRow).values()},
    "start_time": attrgetter("created"),
    "end_time": attrgetter("ended"),
    # Not below 0, even if the clock was set back meanwhile.
    "duration": lambda row: max(0.0, (row.ended or time.time()) - row.created),
}
"""What can be asked of a trial besides its hyperparameters and metrics. Times are in seconds since the Unix epoch, a
duration in seconds."""

_FIELDS: Mapping[str, Field] = {
    name: field for field in declared(TrialRow) for name in (field.name, field.column.removeprefix("trial."))
}

SHORT_NAMES = _TRIAL.keys() - {"seed"}
"""The names of what can be asked of a trial without `trial.` before them."""

Metrics = Mapping[str, Mapping[str, Any]]
"""The last value of each metric, by group and metric."""


class Facts(msgspec.Struct, frozen=True):
    """A trial with its values by name."""

    row: TrialRow
    hparams: Mapping[str, Any]
    """The hyperparameters by dotted name."""
    figures: Mapping[str, Mapping[str, Figures]]
    """The figures of metrics by group and metric. The groups are in the order in which a metric is looked up."""
    metrics: Metrics

    def value(self, name: str) -> Any:
        """Returns the value of a name; None if the trial has none."""
        namespace, _, rest = name.partition(".")
        if namespace in _NAMESPACES and (found := _NAMESPACES[namespace](self, rest)) is not _ABSENT:
            return found
        for look_up in _SHORT_NAMES.values():
            if (found := look_up(self, name)) is not _ABSENT:
                return found
        return None

    def metric(self, name: str) -> Any:
        """Returns the value of a metric; None if the trial has none."""
        found = _metric(self, name)
        return None if found is _ABSENT else found

    def metric_named(self, name: str) -> tuple[str, str] | None:
        """Returns the group and the name of the metric that a name with its group or without it means."""
        for group, of_group in self.figures.items():
            if name in of_group:
                return group, name
        for group, of_group in self.figures.items():
            if name.startswith(f"{group}.") and (rest := name[len(group) + 1 :]) in of_group:
                return group, rest
        return None

    def meanings(self, name: str) -> list[str]:
        """Returns the qualified names that `name` can stand for in this trial."""
        namespace, _, rest = name.partition(".")
        if namespace in _NAMESPACES and _NAMESPACES[namespace](self, rest) is not _ABSENT:
            return [name]
        return [f"{each}.{name}" for each, look_up in _SHORT_NAMES.items() if look_up(self, name) is not _ABSENT]


def read_facts(view: View, rows: Sequence[TrialRow]) -> list[Facts]:
    figures = view.figures([row.trial_id for row in rows])
    return [facts(row, figures.get(row.trial_id, {})) for row in rows]


def facts(row: TrialRow, figures: Mapping[str, Mapping[str, Figures]]) -> Facts:
    """Returns the facts of a trial. `figures` has the figures of its metrics, by group and metric."""
    in_order = {group: figures[group] for group in _groups(figures)}
    metrics = {group: {name: found.last for name, found in of_group.items()} for group, of_group in in_order.items()}
    return Facts(row, flat_hparams(row.hparams), in_order, metrics)


def _groups(figures: Iterable[str]) -> list[str]:
    """Returns the groups in the order in which a metric without a group is looked up."""
    return sorted(figures, key=_place_of)


def _place_of(group: str) -> tuple[bool | str, ...]:
    return (*(group != first for first in _FIRST_GROUPS), group)


def _of_trial(one: Facts, name: str) -> Any:
    if name not in _TRIAL:
        return _ABSENT
    value = _TRIAL[name](one.row)
    is_plain = value is None or isinstance(value, str | int | float) or value is one.row.labels
    return value if is_plain else strict_json(value)


def _hparam(one: Facts, name: str) -> Any:
    return one.hparams.get(name, _ABSENT)


def _metric(one: Facts, name: str) -> Any:
    if (found := _figures(one, name)) is not None:
        return found.last
    for prefix, figure in _FIGURES.items():
        if name.startswith(prefix) and (found := _figures(one, name[len(prefix) :])) is not None:
            return figure(found)
    return _ABSENT


def _figures(one: Facts, metric: str) -> Figures | None:
    """Returns the figures of a metric that is named with or without its group."""
    pair = one.metric_named(metric)
    return None if pair is None else one.figures[pair[0]][pair[1]]


def metric_named(name: str, known: Iterable[tuple[str, str]], of: str | None = None) -> tuple[str, str] | None:
    """Returns the group and the name of the metric that a name with its group or without it means; None if none is.

    `known` has the group and the name of each metric; `of` is the only group in which it can be.
    """
    in_group = ((group, each) for group, each in known if of in (None, group))
    meant = [(group, each) for group, each in in_group if name in (each, f"{group}.{each}")]
    return min(meant, key=lambda pair: (pair[1] != name, *_place_of(pair[0])), default=None)


def _of_trial_in_short(one: Facts, name: str) -> Any:
    return _of_trial(one, name) if name in SHORT_NAMES else _ABSENT


_NAMESPACES: Mapping[str, Callable[[Facts, str], Any]] = {"trial": _of_trial, "hparams": _hparam, "metrics": _metric}
"""The namespaces, with what finds a name there."""
_SHORT_NAMES = {**_NAMESPACES, "trial": _of_trial_in_short}
"""The namespaces in which a name without one is looked up, in this order."""


def flat_hparams(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of nested hyperparameters by dotted name, with lists as JSON.

    Where a name with a dot of its own would be the same as a nested one, its dots are written as `\\\\.`.
    """
    leaves = list(_leaves(hparams, ()))
    num_same = Counter(".".join(path) for path, _ in leaves)
    values = {}
    for path, value in leaves:
        parts = [part.replace(".", "\\.") for part in path] if num_same[".".join(path)] > 1 else path
        values[".".join(parts)] = strict_json(value) if isinstance(value, dict | list | tuple) else value
    return values


def _leaves(value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from _leaves(item, (*path, name))
        else:
            yield (*path, name), item


def first_values(values: Mapping[str, Any], most: int) -> tuple[dict[str, Any], int]:
    """Returns nested mappings with the first `most` of their values, and the number of all."""
    kept: dict[str, Any] = {}
    count = 0
    for name, value in values.items():
        if isinstance(value, dict) and value:
            inner, num_inner = first_values(value, max(0, most - count))
            if inner:
                kept[name] = inner
            count += num_inner
        else:
            if count < most:
                kept[name] = value
            count += 1
    return kept, count


def titles(found: Sequence[Facts], *, with_groups: bool = False) -> dict[str, str]:
    """Returns how the hyperparameters and metrics of the trials are shown, by qualified name.

    That is the shortest name that can mean only one thing; `with_groups`, the shortest one that has a metric's group.
    """
    hparams = {name for one in found for name in one.hparams}
    pairs = {(group, name) for one in found for group, metrics in one.metrics.items() for name in metrics}
    num_groups = Counter(name for _, name in pairs)
    of_metrics = num_groups.keys() | {f"{group}.{name}" for group, name in pairs}
    shown = {f"hparams.{name}": name for name in hparams}
    for name in hparams:
        if _is_namespaced(name) or name in SHORT_NAMES or without_figure(name) in of_metrics:
            shown[f"hparams.{name}"] = f"hparams.{name}"
    for group, name in pairs:
        is_short = num_groups[name] == 1 and not with_groups
        choices = (*([name] if is_short else []), f"{group}.{name}", f"metrics.{group}.{name}")
        taken = (each in hparams or each in SHORT_NAMES or _is_namespaced(each) for each in choices)
        shown[f"metrics.{group}.{name}"] = next(
            (each for each, is_taken in zip(choices, taken, strict=True) if not is_taken), choices[-1]
        )
    return shown


def _is_namespaced(name: str) -> bool:
    return name.partition(".")[0] in _NAMESPACES


def without_figure(name: str) -> str:
    """Returns the name of a metric without `min.`, `max.` or `last.` before it."""
    prefix = next((prefix for prefix in _FIGURES if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


def names_of(found: Sequence[Facts], *, with_groups: bool = False) -> tuple[list[str], list[str]]:
    """Returns the `titles` of the metrics and hyperparameters that differ between trials, and of those that do not.

    One metric, of the validation if there is any, comes first, as if it differed. Then come the hyperparameters that
    differ, and the other metrics.
    """
    shown = titles(found, with_groups=with_groups)
    of_metrics = differing_first(
        [{f"{group}.{name}": last for group, of in one.metrics.items() for name, last in of.items()} for one in found]
    )
    every_metric = sorted(chain(*of_metrics), key=lambda name: (is_count(name), not name.startswith("validation.")))
    first = next((name for name in every_metric if not is_count(name)), None)
    of_hparams = differing_first([one.hparams for one in found])
    differing, same = (
        [
            *(shown[f"hparams.{name}"] for name in hparams),
            *(shown[f"metrics.{name}"] for name in metrics if name != first),
        ]
        for hparams, metrics in zip(of_hparams, of_metrics, strict=True)
    )
    return ([shown[f"metrics.{first}"]] if first else []) + differing, same


def is_count(name: str) -> bool:
    """Returns whether a Trainer adds this metric to each validation, so that it says little more than the steps."""
    return name.rpartition(".")[2] in ("batches", "epochs")


def differing_first(many: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Returns the names whose values differ between the mappings, and those whose values are the same in all.

    Names that most mappings have come first. All names of a single mapping count as differing.
    """
    counts = Counter(name for one in many for name in one)
    names = sorted(counts, key=counts.__getitem__, reverse=True)
    if len(many) == 1:
        return names, []
    # A name that some mappings lack differs. So the time is in proportion to all their values, however many names.
    differ = {
        name for name, count in counts.items() if count < len(many) or len({strict_json(one[name]) for one in many}) > 1
    }
    return [name for name in names if name in differ], [name for name in names if name not in differ]


def problem_with(name: str, found: Sequence[Facts]) -> str:
    """Returns what is wrong with a name: no trial has it, or it can mean several things.

    Returns an empty text if it means one thing, or if there are no trials.
    """
    meanings = dict.fromkeys(chain.from_iterable(one.meanings(name) for one in found))
    if len(meanings) == 1 or not found:
        return ""
    if meanings:
        return f"{name!r} can mean {' or '.join(meanings)}: write which one is meant"
    prefix = next((prefix for prefix in _FIGURES if name.startswith(prefix)), "")
    known = dict.fromkeys([*SHORT_NAMES, "trial.seed"] if not prefix else ())
    for one in found:
        known |= dict.fromkeys(one.hparams if not prefix else ())
        known |= dict.fromkeys(
            f"{prefix}{each}" for each in chain.from_iterable(map(_metric_names, one.metrics.items()))
        )
    similar = difflib.get_close_matches(name, known, n=3)
    hint = f": did you mean {' or '.join(similar)}?" if similar else ""
    return f"no trial has a hyperparameter or a metric {name!r}{hint}"


def _metric_names(of_group: tuple[str, Mapping[str, Any]]) -> Iterator[str]:
    group, metrics = of_group
    for name in metrics:
        yield from (name, f"{group}.{name}")


def field_of(name: str, found: Iterable[Facts]) -> Field | None:
    """Returns the field of a trial that a name means; None for a hyperparameter, a metric and what is computed."""
    meant = qualified(name, found)
    return _FIELDS.get(meant.removeprefix("trial.")) if meant.startswith("trial.") or meant in SHORT_NAMES else None


def qualified(name: str, found: Iterable[Facts]) -> str:
    """Returns the qualified name of a name; the name itself if no trial has it."""
    return next(chain.from_iterable(one.meanings(name) for one in found), name)
