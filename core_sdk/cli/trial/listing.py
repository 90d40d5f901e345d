"""The table of `trial list`: which trials, in which order, with which columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from core_sdk.cli.render.csv import print_csv
from core_sdk.cli.render.json import encode, print_list
from core_sdk.cli.render.output import Format
from core_sdk.cli.render.tables import Column, print_table
from core_sdk.cli.render.text import format_number, format_time
from core_sdk.cli.trial.facts import Facts, differing_first, flattened, metric_titles, read_facts, unknown_name
from core_sdk.cli.trial.where import Condition, ConditionError, parse_condition
from core_sdk.tracking.rows import TrialRow

if TYPE_CHECKING:
    from core_sdk.tracking import View


@dataclasses.dataclass(frozen=True)
class Choice:
    """What `trial list` was asked for."""

    experiment_id: int | None = None
    labels: Sequence[str] = ()
    where: str = ""
    sort: str = ""
    """A name; descending with "-" before it."""
    columns: Sequence[str] = ()


def choose_trials(view: View, choice: Choice) -> tuple[list[Facts], list[str]]:
    """The trials, and the names that the choice mentions. Raises `typer.BadParameter` for what cannot be meant."""
    condition = _parse(choice.where)
    sort_name = choice.sort.removeprefix("-")
    mentioned = (*choice.columns, sort_name, *(condition.names if condition else ()))
    names = dict.fromkeys(name for name in mentioned if name)
    found = read_facts(view, view.trials(choice.experiment_id), names)
    _check_names(choice, condition, found)
    chosen = [
        one
        for one in found
        if set(choice.labels) <= set(one.row.labels) and (condition is None or condition.holds(one.values.get))
    ]
    return (in_order(chosen, choice.sort) if choice.sort else chosen), list(names)


def in_order(found: Sequence[Facts], sort: str) -> list[Facts]:
    """By the value of a name, descending with "-" before it; trials without such a value come last."""
    name = sort.removeprefix("-")

    def is_comparable(value: Any) -> bool:
        return value is not None and value == value  # NaN does not equal itself

    def key(one: Facts) -> tuple[bool, Any]:
        value = one.values[name]
        return isinstance(value, str), value

    with_value = [one for one in found if is_comparable(one.values.get(name))]
    without = [one for one in found if not is_comparable(one.values.get(name))]
    return [*sorted(with_value, key=key, reverse=sort.startswith("-")), *without]


def print_trials(found: Sequence[Facts], names: Sequence[str], form: Format) -> None:
    """JSON and CSV have the whole of every trial; a table has the columns that fit, the `names` first."""
    match form:
        case Format.JSON:
            print_list(json_object(one, names) for one in found)
        case Format.CSV:
            _print_csv(found, names)
        case Format.TABLE:
            print_table(_columns(found, names), found)


def _parse(where: str) -> Condition | None:
    try:
        return parse_condition(where) if where else None
    except ConditionError as error:
        raise typer.BadParameter(str(error), param_hint="--where") from error


def _check_names(choice: Choice, condition: Condition | None, found: Sequence[Facts]) -> None:
    for option, names in (("--column", choice.columns), ("--sort", [choice.sort.removeprefix("-")])):
        for name in names:
            if name and (problem := unknown_name(name, found)):
                raise typer.BadParameter(problem, param_hint=option)
    for name, place in condition.names.items() if condition else ():
        if problem := unknown_name(name, found):
            raise typer.BadParameter(str(ConditionError(problem, choice.where, place)), param_hint="--where")


def print_comparison(found: Sequence[Facts]) -> None:
    """A column for each trial and a row for each name, first those whose values differ."""
    (hparams, same_hparams), (metrics, same_metrics) = _hparams(found), _metrics(found)
    titles = metric_titles(found)
    rows = ["experiment", "state", "steps", *hparams, *metrics, *same_hparams, *same_metrics]
    name = Column[str]("Trial", lambda row: titles.get(row, row))
    print_table([name, *(Column(str(one.row.trial_id), _value_of(one), is_number=True) for one in found)], rows)


def _value_of(one: Facts) -> Callable[[str], str]:
    return lambda name: shown_value(one.values.get(name))


def json_object(one: Facts, names: Sequence[str] = ()) -> dict[str, Any]:
    shown = {field.name: getattr(one.row, field.name) for field in dataclasses.fields(one.row)}
    columns = {name: one.values.get(name) for name in names}
    return shown | {"metrics": one.metrics} | ({"columns": columns} if names else {})


def _print_csv(found: Sequence[Facts], names: Sequence[str]) -> None:
    fields = [field.name for field in dataclasses.fields(TrialRow)]
    further = [name for name in (*names, *_names(found)) if name not in fields]
    columns = list(dict.fromkeys(further))
    rows = ([*(getattr(one.row, field) for field in fields), *map(one.values.get, columns)] for one in found)
    print_csv([*fields, *columns], rows)


def _names(found: Sequence[Facts]) -> list[str]:
    """The hyperparameters and metrics, first those that differ."""
    (hparams, same_hparams), (metrics, same_metrics) = _hparams(found), _metrics(found)
    return [*hparams, *metrics, *same_hparams, *same_metrics]


def _hparams(found: Sequence[Facts]) -> tuple[list[str], list[str]]:
    return differing_first([one.hparams for one in found])


def _metrics(found: Sequence[Facts]) -> tuple[list[str], list[str]]:
    return differing_first([dict(flattened(one.metrics)) for one in found])


def _columns(found: Sequence[Facts], names: Sequence[str]) -> list[Column[Facts]]:
    first: dict[str, Column[Facts]] = {
        "id": Column("ID", lambda one: str(one.row.trial_id), is_number=True),
        "experiment": Column("Experiment", lambda one: one.row.experiment_name, can_be_cut=True),
        "state": Column("State", lambda one: one.row.state),
        "steps": Column("Steps", lambda one: str(one.row.steps_completed), is_number=True),
    }
    last: dict[str, Column[Facts]] = {
        "reason": Column("Reason", lambda one: one.row.reason, can_be_cut=True),
        "started": Column("Started", lambda one: format_time(one.row.created)),
        "label": Column("Labels", lambda one: ", ".join(one.row.labels), can_be_cut=True),
        "attempts": Column("Attempts", lambda one: str(one.row.num_attempts), is_number=True),
    }
    (hparams, same_hparams), (metrics, same_metrics) = _hparams(found), _metrics(found)
    chosen = dict.fromkeys([*first, *names, *hparams, *metrics, *last, *same_metrics, *same_hparams])
    fixed, titles = first | last, metric_titles(found)
    # A metric may be asked for with its group or without it, and is shown once.
    shown = dict.fromkeys(titles.get(name, name) for name in chosen)
    return [fixed[name] if name in fixed else _column(found, name) for name in shown]


def _column(found: Sequence[Facts], name: str) -> Column[Facts]:
    is_text = any(isinstance(one.values.get(name), str) for one in found)
    return Column(name, lambda one: shown_value(one.values.get(name)), is_number=not is_text, can_be_cut=is_text)


def shown_value(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return encode(value) if isinstance(value, bool) else format_number(value)
