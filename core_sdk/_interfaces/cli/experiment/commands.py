"""The commands of `core-sdk experiment`."""

from __future__ import annotations

from typing import Annotated, Any

import click

from core_sdk._execution.steering import experiments as verbs
from core_sdk._ground.records import SearcherMetric, fields_of
from core_sdk._home import open_view
from core_sdk._home.finding.best import best_trial
from core_sdk._home.finding.facts import Facts, read_facts
from core_sdk._home.rows import ExperimentRow
from core_sdk._interfaces.cli._arguments import BestMetric, Force, Labels, Remove, Since, SmallerIsBetter, Yes
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import in_home, open_home
from core_sdk._interfaces.cli._ids import Experiments, parse_experiment
from core_sdk._interfaces.cli.experiment import looking, steering, submitting
from core_sdk._interfaces.cli.experiment.looking import why_no_best
from core_sdk._interfaces.cli.trial.listing import json_object, print_trials, with_searched
from core_sdk._interfaces.cli.trial.time_ledger import experiment_time
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, Limit, choose_form
from core_sdk._interfaces.render.output import Form, confirm, limited, print_list, print_one, print_rows
from core_sdk._interfaces.render.rows import properties_of
from core_sdk._interfaces.render.tables import Column
from core_sdk._interfaces.render.text import format_time, printable
from core_sdk._interfaces.signatures import Argument, Option

app = command_group()
for _commands in (submitting, steering, looking):
    _commands.register(app)
app.command("time", reads_homes=True)(experiment_time)

_NUM_TRIALS = 20
_COLUMNS = [
    Column[ExperimentRow]("ID", lambda row: row.experiment_id, is_number=True),
    Column[ExperimentRow]("Name", lambda row: row.name, can_be_cut=True),
    Column[ExperimentRow]("State", lambda row: _state(row)),
    Column[ExperimentRow]("Progress", lambda row: _progress(row), is_number=True),
    Column[ExperimentRow]("Trials", lambda row: row.num_trials, is_number=True),
    Column[ExperimentRow]("Labels", lambda row: ", ".join(row.labels), can_be_cut=True),
    Column[ExperimentRow]("Created", lambda row: format_time(row.created)),
    Column[ExperimentRow]("Searcher", lambda row: row.search.searcher if row.search else ""),
    Column[ExperimentRow]("Parent", lambda row: str(row.parent or ""), is_number=True),
    Column[ExperimentRow]("Archived", lambda row: "archived" if row.is_archived else ""),
]


@app.command("list", reads_homes=True)
def list_experiments(
    every: Annotated[bool, Option("--all", help="Also those that are archived.")] = False,
    since: Since = None,
    limit: Limit = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List experiments. With --since, those that were created since then."""
    form = choose_form(as_json, as_csv, fields)
    home = open_home()
    with open_view(home) as view:
        rows = [row for row in view.experiments() if every or not row.is_archived]
    rows = [row for row in rows if since is None or row.created >= since]
    rows, form = limited(rows, limit, form)
    print_rows(rows, ExperimentRow, _COLUMNS, form, f"No experiments yet {in_home(home)}: the first trial begins one.")


@app.command(reads_homes=True)
def describe(
    experiment: Annotated[
        str,
        Argument(metavar="EXPERIMENT", help="Its number or name, or several numbers: 5,6.", show_default=False),
    ],
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show what is known of an experiment: its trials, and the best of them."""
    form = choose_form(as_json, fields=fields)
    numbers = experiment.split(",")
    are_several = len(numbers) > 1 and all(map(str.isdecimal, numbers))
    chosen = map(parse_experiment, numbers if are_several else [experiment])
    described = [_described(experiment_id, metric, smaller_is_better) for experiment_id in chosen]
    if are_several and form.is_json:
        print_list((value for value, *_ in described), form.fields)
        return
    for index, (value, properties, found, recorded) in enumerate(described):
        if index:
            click.echo()
        print_one(value, properties, form)
        if form.is_table and found:
            click.echo()
            newest, asked_for = found[-_NUM_TRIALS:], SearcherMetric(name=metric) if metric else recorded
            print_trials(newest, with_searched((), asked_for, newest), Form(), names_experiment=False)
            if len(found) > _NUM_TRIALS:
                every = f"`core-sdk trial list --experiment {value['experiment_id']}` lists all {len(found)} trials"
                click.echo(f"These are the newest {_NUM_TRIALS}: {every}.")


def _described(
    experiment_id: int, metric: str | None, smaller_is_better: bool | None
) -> tuple[dict[str, Any], dict[str, object], list[Facts], SearcherMetric | None]:
    """Returns an experiment as programs get it, as people see it, its trials, and its searcher's metric."""
    home = open_home()
    with open_view(home) as view:
        row = view.experiment(experiment_id)
        best = best_trial(home, view, experiment_id, metric, smaller_is_better)
        if best is None and metric is not None:
            raise click.BadParameter(why_no_best(home, view, experiment_id, metric))
        found = read_facts(view, view.trials(experiment_id))
    value = fields_of(row) | {"best": best, "trials": [json_object(one) for one in found]}
    recorded = home.experiment(experiment_id).read().searcher_metric
    return value, {**_properties(row), "Best": best}, found, recorded


@app.command(reads_homes=True)
def label(
    experiment: Annotated[
        str, Argument(metavar="EXPERIMENT", help="Its number, or else its whole name.", show_default=False)
    ],
    labels: Labels,
    remove: Remove = False,
) -> None:
    """Give an experiment labels, or take them away."""
    if experiment in ("add", "remove") and len(labels) > 1 and labels[0].isdecimal():
        remove, experiment, labels = experiment == "remove", labels[0], labels[1:]  # Determined's way to say it
    home, experiment_id = open_home(), parse_experiment(experiment)
    verbs.label(home, experiment_id, **{"remove" if remove else "add": labels})
    now = home.experiment(experiment_id).read().labels
    click.echo(f"labels of experiment {experiment_id}: {printable(', '.join(sorted(now))) or 'none'}")


@app.command(reads_homes=True)
def delete(
    experiments: Experiments,
    force: Force = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete experiments with their trials, their records and their checkpoints.

    An experiment with a checkpoint that is pinned, that is a version of a model, or that a trial of another experiment
    began with or uses, is not deleted; --force overrides pins, and trials that do not run.
    """
    home = open_home()
    with open_view(home) as view:
        rows = [view.experiment(experiment_id) for experiment_id in dict.fromkeys(experiments)]
    names = ", ".join(f"{row.experiment_id} ({printable(row.name)!r}, {_num_trials(row)})" for row in rows)
    confirm(f"Delete experiment{'s' if len(rows) > 1 else ''} {names}, all records and checkpoints?", yes)
    deleted = []
    try:
        for row in rows:
            verbs.delete(home, row.experiment_id, force=force)
            deleted.append({"experiment_id": row.experiment_id, "state": "DELETED"})
            if not as_json:
                click.echo(f"deleted experiment {row.experiment_id}")
    finally:
        if as_json:
            print_list(deleted)


def _num_trials(row: ExperimentRow) -> str:
    return f"{row.num_trials} trial{'' if row.num_trials == 1 else 's'}"


def _state(row: ExperimentRow) -> str:
    return f"{row.state}, damaged" if row.search is not None and row.search.is_damaged else row.state


def _progress(row: ExperimentRow) -> str:
    return "" if row.search is None or row.search.progress is None else f"{row.search.progress:.0%}"


def _properties(row: ExperimentRow) -> dict[str, object]:
    search = row.search
    searched = {"Reason": search.reason, "Searcher": search.searcher, "Progress": _progress(row)} if search else {}
    special = {
        "experiment_id": {"Experiment": row.experiment_id},
        "state": {"State": _state(row)} | searched,
        "num_trials": {"Trials": row.num_trials, "Warnings": search.warnings if search else ""},
    }
    return properties_of(row, special)
