"""The values of a trial by name: its state, its hyperparameters, its metrics.

A name is `id`, `experiment`, `state`, `steps`, `attempts`, `reason` or `label`; or a hyperparameter (`lr`,
`model.layers`); or a metric, which means its last value (`accuracy`, `training.loss`), or `min.` or `max.` before one.
A metric without its group is that of "validation", else of "training", else of any other group. There are also
`experiment_id`, `started`, `ended`, `duration` (in seconds), `progress`, `status`, `archived`, `checkpoint` (the
latest), `continued_from`, `damaged_lines`, `name` and `notes`, unless a hyperparameter or a metric has the same name.
"""

from __future__ import annotations

import difflib
import functools
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk.records import strict_json
from core_sdk.tracking import View
from core_sdk.tracking.rows import Figures, TrialRow

_EXTREMES = ("min.", "max.")
_FIRST_GROUPS = ("validation", "training")
_COLUMNS = ("id", "experiment", "state", "steps", "attempts", "reason", "label", "started")
"""The names of the columns that a list shows for every trial."""
_ABSENT = ["absent"]  # no hyperparameter or metric encodes like this, since lists are flattened to text

Metrics = Mapping[str, Mapping[str, Any]]
"""The last value of each metric, by group and metric."""


@dataclass(frozen=True)
class Facts:
    """A trial with its values by name."""

    row: TrialRow
    hparams: Mapping[str, Any]
    metrics: Metrics
    values: Mapping[str, Any]
    """The values of the trial by name."""


def read_facts(view: View, rows: Sequence[TrialRow]) -> list[Facts]:
    figures = view.figures([row.trial_id for row in rows])
    return [facts(row, figures.get(row.trial_id, {})) for row in rows]


def facts(row: TrialRow, figures: Mapping[str, Mapping[str, Figures]]) -> Facts:
    """Returns the facts of a trial. `figures` are those of its metrics, by group and metric."""
    in_order = {group: figures[group] for group in _groups(figures)}
    metrics = {group: {name: found.last for name, found in of_group.items()} for group, of_group in in_order.items()}
    values = _by_name(in_order)
    hparams = dict(flattened(row.hparams))
    fields = {
        "id": row.trial_id,
        "experiment": row.experiment_name,
        "state": row.state,
        "steps": row.steps_completed,
        "attempts": row.num_attempts,
        "reason": row.reason,
        "label": row.labels,
    }
    return Facts(row, hparams, metrics, _course(row) | values | hparams | fields)


def _course(row: TrialRow) -> dict[str, Any]:
    return {
        "experiment_id": row.experiment_id,
        "started": row.created,
        "ended": row.ended,
        "duration": (row.ended or time.time()) - row.created,
        "progress": row.progress,
        "status": row.status,
        "archived": row.is_archived,
        "checkpoint": row.latest_checkpoint,
        "continued_from": row.continued_from,
        "damaged_lines": row.num_bad_lines,
        "name": row.name,
        "notes": row.notes,
    }


def _groups(figures: Iterable[str]) -> list[str]:
    """Returns the groups in the order in which a metric without a group is looked up."""
    return sorted(figures, key=lambda group: (*(group != first for first in _FIRST_GROUPS), group))


def _by_name(figures: dict[str, Mapping[str, Figures]]) -> dict[str, Any]:
    """Returns the figures of metrics by their names, with their group and without it."""
    values: dict[str, Any] = {}
    for group, of_group in figures.items():
        for name, found in of_group.items():
            values.update(zip(_names(f"{group}.{name}"), found, strict=True))
    for of_group in reversed(figures.values()):
        for name, found in of_group.items():
            values.update(zip(_names(name), found, strict=True))
    return values


@functools.lru_cache(maxsize=4096)
def _names(metric: str) -> tuple[str, str, str]:
    """Returns the names of a metric's `Figures`. Cached, since thousands of trials share them."""
    minimum, maximum = _EXTREMES
    return metric, f"{minimum}{metric}", f"{maximum}{metric}"


def flattened(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested mappings under dotted names, with lists as JSON."""
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from flattened(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", strict_json(item) if isinstance(item, (dict, list, tuple)) else item


def metric_titles(found: Sequence[Facts]) -> dict[str, str]:
    """Returns by "group.metric" how it is shown: without its group, unless something else has that name, too."""
    pairs = {(group, name) for one in found for group, metrics in one.metrics.items() for name in metrics}
    num_meanings = Counter(name for _, name in pairs)
    num_meanings.update({name for one in found for name in one.hparams})
    num_meanings.update(_COLUMNS)
    return {f"{group}.{name}": name if num_meanings[name] == 1 else f"{group}.{name}" for group, name in pairs}


def differing_first(many: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Returns the names whose values differ between the mappings, and those whose values are the same in all.

    All names of a single mapping count as differing.
    """
    names = dict.fromkeys(name for one in many for name in one)
    if len(many) == 1:
        return list(names), []
    differ = [name for name in names if len({strict_json(one.get(name, _ABSENT)) for one in many}) > 1]
    return differ, [name for name in names if name not in differ]


def unknown_name(name: str, all_facts: Collection[Facts]) -> str:
    """Returns the message for a name that no trial has; empty if one has it, or if there are no trials."""
    if any(name in one.values for one in all_facts):
        return ""
    is_extreme = name.startswith(_EXTREMES)
    known = {known for one in all_facts for known in one.values if known.startswith(_EXTREMES) == is_extreme}
    if not known:
        return ""
    similar = difflib.get_close_matches(name, known, n=3)
    hint = f": did you mean {' or '.join(similar)}?" if similar else ""
    return f"no trial has a hyperparameter or a metric {name!r}{hint}"
