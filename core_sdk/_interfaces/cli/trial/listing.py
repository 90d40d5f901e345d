"""The table of `trial list`: which trials, in which order, with which columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import click

from core_sdk._ground.records import SearcherMetric, fields_of, format_number, generated_name, strict_json
from core_sdk._home import View
from core_sdk._home.fields import titled
from core_sdk._home.finding.facts import (
    SHORT_NAMES,
    Facts,
    field_of,
    is_count,
    names_of,
    problem_with,
    qualified,
    read_facts,
    titles,
)
from core_sdk._home.finding.groups import grouped_metric
from core_sdk._home.finding.order import in_order
from core_sdk._home.finding.where import Condition, ConditionError, parse_condition
from core_sdk._home.rows import TrialRow
from core_sdk._interfaces.render.output import Form, print_csv, print_fields_as_csv, print_list
from core_sdk._interfaces.render.rows import as_text
from core_sdk._interfaces.render.tables import MOST_NAMES, Column, print_table, shortened

_LONG_CHARS = 20


class ChosenTrials(NamedTuple):
    rows: list[TrialRow]
    """The rows in the order of the list."""
    names: list[str]
    """The names in the options."""
    known: Mapping[int, Facts]
    """The facts of all trials, if the options needed them."""

    def facts_of(self, view: View, rows: Sequence[TrialRow]) -> list[Facts]:
        """Returns the facts of some of these trials, and reads no others: they take longer to read than the rows."""
        return [self.known[row.trial_id] for row in rows] if self.known else read_facts(view, rows)


def choose_trials(
    view: View,
    rows: Sequence[TrialRow],
    *,
    labels: Collection[str] = (),
    where: str = "",
    sort: str = "",
    columns: Sequence[str] = (),
    with_archived: bool = False,
    since: float | None = None,
) -> ChosenTrials:
    """Chooses among trials. Raises `click.BadParameter` for a wrong option.

    New `since` a time are those that run, or have ended after it.
    """
    condition = _parse(where)
    sort_name = sort.removeprefix("-")
    names = dict.fromkeys(filter(None, (*columns, sort_name, *(condition.names if condition else ()))))
    found = read_facts(view, rows) if names else []
    for option, name in (("--sort", sort_name), *(("--column", name) for name in columns)):
        if name and (problem := problem_with(name, found)):
            raise click.BadParameter(problem, param_hint=option)
    try:
        if condition is not None:
            condition.check(lambda name: problem_with(name, found), lambda name: field_of(name, found))
    except ConditionError as error:
        raise click.BadParameter(str(error), param_hint="--where") from error
    known = {one.row.trial_id: one for one in found}
    chosen = [row for row in rows if condition is None or condition.holds(known[row.trial_id].value)]
    chosen = [row for row in chosen if with_archived or not row.is_archived]
    chosen = [row for row in chosen if set(labels) <= set(row.labels)]
    if since is not None:
        chosen = [row for row in chosen if row.ended is None or row.ended >= since]
    if sort:
        chosen = [one.row for one in in_order([known[row.trial_id] for row in chosen], sort)]
    return ChosenTrials(chosen, list(names), known)


def print_trials(found: Sequence[Facts], names: Sequence[str], form: Form, *, names_experiment: bool = True) -> None:
    """Prints trials: JSON and CSV have all of every trial; a table has the columns that fit, the `names` first."""
    if form.is_json:
        print_list((json_object(one, names) for one in found), form.fields)
    elif form.fields:
        print_fields_as_csv((json_object(one, names) for one in found), form.fields)
    elif form.is_csv:
        _print_csv(found, names)
    else:
        columns, num_more = _columns(found, names, names_experiment)
        print_table(columns, found, num_more=num_more, most_bytes=form.most_bytes, is_first_kept=form.is_first_kept)


def with_searched(names: Sequence[str], metric: SearcherMetric | None, found: Sequence[Facts]) -> list[str]:
    """Returns the names that come first in a table of an experiment's trials: also the searcher's metric, if any."""
    name = f"metrics.{grouped_metric(found, metric).name}" if metric else ""
    return [*names, *([name] if any(one.meanings(name) for one in found) else [])]


def _parse(where: str) -> Condition | None:
    try:
        return parse_condition(where) if where else None
    except ConditionError as error:
        raise click.BadParameter(str(error), param_hint="--where") from error


def print_comparison(found: Sequence[Facts]) -> None:
    """Prints a column for each trial and a row for each name, first those whose values differ."""
    differing, same = names_of(found)

    def values(one: Facts) -> Column[str]:
        return Column(str(one.row.trial_id), lambda name: _shown(one.value(name)), is_number=True)

    names = Column[str]("Trial", shortened)
    print_table([names, *map(values, found)], ["experiment", "state", "steps", *differing, *same])


def json_object(one: Facts, names: Sequence[str] = ()) -> dict[str, Any]:
    columns = {name: one.value(name) for name in names}
    return fields_of(one.row) | {"metrics": one.metrics} | ({"columns": columns} if names else {})


def _print_csv(found: Sequence[Facts], names: Sequence[str]) -> None:
    fields = TrialRow.__struct_fields__
    shown_fields = [
        f"trial.{field}" if field not in SHORT_NAMES or problem_with(field, found) else field for field in fields
    ]
    differing, same = names_of(found, with_groups=True)
    asked_for = _asked_for(names, found, with_groups=True)
    columns = [name for name in dict.fromkeys((*asked_for, *differing, *same)) if name not in shown_fields]
    rows = ([*(getattr(one.row, field) for field in fields), *map(one.value, columns)] for one in found)
    print_csv([[*shown_fields, *columns], *rows])


def _asked_for(names: Sequence[str], found: Sequence[Facts], *, with_groups: bool = False) -> list[str]:
    """Returns how names that were asked for are shown: alike if they are names of the same thing."""
    shown = titles(found, with_groups=with_groups) if names else {}
    return [shown.get(qualified(name, found), name) for name in names]


def _columns(found: Sequence[Facts], names: Sequence[str], names_experiment: bool) -> tuple[list[Column[Facts]], int]:
    """Returns the columns of a table, and how many more names there are."""
    first = [
        "id",
        *(["owner"] if any(one.row.owner for one in found) else []),
        *(["experiment"] if names_experiment else []),
        "state",
        "steps",
    ]
    if any(one.row.name != generated_name(one.row.trial_id, one.row.created) for one in found):
        first.append("name")
    last = ["reason", "started", "label"]
    differing, same = names_of(found)
    counts = {name for name in (*differing, *same) if is_count(name)}
    differing, same = ([name for name in each if name not in counts] for each in (differing, same))
    num_more = sum(max(0, len(each) - MOST_NAMES) for each in (differing, same))
    differing, same = differing[:MOST_NAMES], same[:MOST_NAMES]
    asked_for = [name for name in _asked_for(names, found) if name not in first]
    texts = {
        name: [value for one in found if isinstance(value := one.value(name), str)]
        for name in (*asked_for, *differing, *same, *counts)
    }
    differing.sort(key=lambda name: any(len(text) > _LONG_CHARS for text in texts[name]))

    def column(name: str) -> Column[Facts]:
        is_text = bool(texts[name])
        return Column(name, lambda one: _shown(one.value(name)), is_number=not is_text, can_be_cut=is_text)

    shown = dict.fromkeys((*first, *asked_for, *differing, *last, *same, "attempts", *sorted(counts)))
    return [_of_field(name) if name in (*first, *last, "attempts") else column(name) for name in shown], num_more


def _of_field(name: str) -> Column[Facts]:
    field = titled(TrialRow)[name]
    can_be_cut = field.kind in ("text", "texts") and name != "state"
    is_number = field.kind == "integer"
    return Column(field.title, lambda one: as_text(field.kind, getattr(one.row, field.name)), is_number, can_be_cut)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return strict_json(value) if isinstance(value, bool) else format_number(value)
