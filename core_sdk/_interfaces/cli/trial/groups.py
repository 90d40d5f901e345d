"""The table of groups of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from core_sdk._ground.records import SearcherMetric, fields_of, format_number
from core_sdk._home.finding.facts import titles
from core_sdk._home.finding.groups import (
    GroupBest,
    TrialGroup,
    aggregate,
    best_of,
    is_named,
    metric_names,
    value_text,
)
from core_sdk._interfaces.render.tables import MOST_NAMES, Column, print_table


def print_groups(
    groups: Sequence[TrialGroup], names: Sequence[str], decides: SearcherMetric | None, metrics: Sequence[str]
) -> None:
    """Prints a row for each group. `metrics` are those that are shown; all, if it is empty."""
    found = [one for group in groups for one in group.members]
    shown_as = titles(found)
    chosen = [name for name in metric_names(found) if not metrics or is_named(name, metrics)]
    shown = chosen[:MOST_NAMES]

    def key(index: int) -> Column[TrialGroup]:
        return Column(names[index], lambda group: value_text(group.values[index]))

    def metric(name: str) -> Column[TrialGroup]:
        return Column(shown_as[f"metrics.{name}"], lambda group: _aggregate_text(group, name), is_number=True)

    def best(text: Callable[[GroupBest], object], title: str) -> Column[TrialGroup]:
        return Column(title, lambda group: (one := best_of(group.members, decides)) and text(one), is_number=True)

    columns = [
        *map(key, range(len(names))),
        Column[TrialGroup]("Trials", lambda group: len(group.members), is_number=True),
        best(lambda one: one.trial_id, "Best"),
        *([best(lambda one: format_number(one.value), _title(decides, shown_as))] if decides else []),
        *map(metric, shown),
    ]
    print_table(columns, groups, num_more=len(chosen) - len(shown))


def _title(decides: SearcherMetric, shown_as: Mapping[str, str]) -> str:
    name = shown_as.get(f"metrics.{decides.name}", decides.name)
    return msgspec.structs.replace(decides, name=name).best_name


def _aggregate_text(group: TrialGroup, name: str) -> str:
    found = aggregate(one.metric(name) for one in group.members)
    if found is None:
        return ""
    std = "" if found.std is None else f" ± {found.std:.2g}"
    num = "" if found.count == len(group.members) else f" (n = {found.count})"
    return f"{format_number(found.mean)}{std}{num}"


def group_object(group: TrialGroup, names: Sequence[str], decides: SearcherMetric | None) -> dict[str, Any]:
    best = best_of(group.members, decides)
    return {
        "values": dict(zip(names, group.values, strict=True)),
        "trials": group.trial_ids,
        "best_by": decides.best_name if decides else None,
        "best_trial": best.trial_id if best else None,
        "best_value": best.value if best else None,
        "metrics": {name: fields_of(found) for name, found in group.aggregates.items()},
    }
