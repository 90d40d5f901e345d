"""`core-sdk experiment …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core_sdk.cli._arguments import Experiment, parse_experiment
from core_sdk.cli._group import command_group
from core_sdk.cli.render.output import AsCsv, AsJson, choose_format, confirm, print_one, print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core_sdk.cli.render.tables import Column
    from core_sdk.tracking.rows import ExperimentRow

app = command_group()


@app.command("list")
def list_experiments(as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List experiments."""
    from core_sdk.client import Tracker
    from core_sdk.tracking.rows import ExperimentRow

    form = choose_format(as_json, as_csv)
    with Tracker().index() as index:
        rows = index.experiments()
    print_rows(rows, ExperimentRow, _columns, form, "No experiments yet: the first trial begins one.")


@app.command()
def describe(experiment: Experiment, as_json: AsJson = False) -> None:
    """Show what is known of an experiment."""
    from core_sdk.client import Tracker

    with Tracker().index() as index:
        row = index.experiment(parse_experiment(experiment))
    print_one(row, lambda: _properties(row), as_json)


@app.command()
def label(
    experiment: Experiment,
    labels: Annotated[list[str], typer.Argument(metavar="LABEL…", help="The labels.", show_default=False)],
    remove: Annotated[bool, typer.Option("--remove", help="Take the labels away.")] = False,
) -> None:
    """Give an experiment labels, or take them away."""
    from core_sdk.cli.render.text import printable
    from core_sdk.client import Tracker
    from core_sdk.records import check_name

    found = Tracker().get_experiment(parse_experiment(experiment))
    # All are checked before the first is changed.
    for text in [check_name("the label", text) for text in labels]:
        if remove:
            found.remove_label(text)
        else:
            found.add_label(text)
    typer.echo(f"labels of experiment {found.id}: {printable(', '.join(sorted(found.labels))) or 'none'}")


@app.command()
def delete(
    experiment: Experiment,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also with a checkpoint that is pinned, or that a trial of another began with."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete an experiment with its trials, their records and their checkpoints.

    One with a checkpoint that is pinned, or that a trial of another experiment began with or uses, is refused;
    --force passes over all but a use by a running trial.
    """
    from core_sdk.cli.render.text import printable
    from core_sdk.client import Tracker

    tracker = Tracker()
    with tracker.index() as index:
        row = index.experiment(parse_experiment(experiment))
    trials = f"{row.num_trials} trial{'' if row.num_trials == 1 else 's'}"
    confirm(f"Delete experiment {printable(row.name)!r} with {trials}, all their records and checkpoints?", yes)
    tracker.records.delete_experiment(row.experiment_id, is_forced=force)
    typer.echo(f"deleted experiment {row.experiment_id}")


def _columns() -> Sequence[Column[ExperimentRow]]:
    from core_sdk.cli.render.tables import Column
    from core_sdk.cli.render.text import format_time

    return [
        Column("ID", lambda row: str(row.experiment_id), is_number=True),
        Column("Name", lambda row: row.name),
        Column("State", lambda row: row.state),
        Column("Trials", lambda row: str(row.num_trials), is_number=True),
        Column("Labels", lambda row: ", ".join(row.labels)),
        Column("Created", lambda row: format_time(row.created)),
    ]


def _properties(row: ExperimentRow) -> Mapping[str, str]:
    from core_sdk.cli.render.text import format_time

    return {
        "Experiment": str(row.experiment_id),
        "Name": row.name,
        "State": row.state,
        "Trials": str(row.num_trials),
        "Labels": ", ".join(row.labels),
        "Description": row.description,
        "Created": format_time(row.created),
    }
