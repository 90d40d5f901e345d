"""`core-sdk sql`, `export` and `import`: records for tools that speak SQL or read Parquet, and of other trackers."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import click

from core_sdk._ground.records import format_number
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import make_home, open_home
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsCsv, AsJson, choose_form
from core_sdk._interfaces.render.output import print_csv, print_list
from core_sdk._interfaces.render.tables import Column, print_table
from core_sdk._interfaces.signatures import Argument, Option

_MAX_SHOWN = 200


def sql(
    query: Annotated[str, Argument(metavar="QUERY", help="A query of DuckDB's SQL; -: read it from stdin.")],
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Ask a question in SQL over the tables experiments, trials, hparams, metrics and checkpoints.

    They are copies in memory: nothing that a query does changes a record, and it reads no other file. `describe trials`
    shows the columns of a table. Needs DuckDB and NumPy.
    """
    from core_sdk._analysis.exchange.database import query as ask

    form = choose_form(as_json, as_csv)
    text = sys.stdin.read() if query == "-" else query
    with ask(open_home(), text) as (given, found):
        names = [f"{name}_{given[:place].count(name)}" if name in given[:place] else name
                 for place, name in enumerate(given)]  # fmt: skip
        rows = ([_plain(value) for value in row] for row in found)
        if form.is_json:
            print_list(dict(zip(names, row, strict=True)) for row in rows)
        elif form.is_csv:
            print_csv([names])
            print_csv(rows)
        else:
            _print_table(names, rows)


def export(
    directory: Annotated[Path, Argument(metavar="DIRECTORY", help="It is made if it does not exist.")],
) -> None:
    """Write the tables of `core-sdk sql` as Parquet files, in place of an earlier export's files.

    `core-sdk trial export` writes trials that another home can take. Needs DuckDB and NumPy.
    """
    from core_sdk._analysis.exchange.database import export_parquet

    for path in export_parquet(open_home(), directory):
        click.echo(path)


def import_runs(
    path: Annotated[Path, Argument(metavar="PATH", help="A file or a folder, which is only read.")],
    name: Annotated[
        str | None,
        Option(metavar="NAME", help="The name of the experiment of the trials.", show_default="the tool's name"),
    ] = None,
) -> None:
    """Make trials of the runs of other trackers, with their curves, configurations and media.

    Reads event files of TensorBoard, folders of wandb's runs, stores of MLflow (mlruns/ or an SQLite database) and
    databases of trackio, also several of them below one folder. A run that was imported before is left out.
    """
    from core_sdk._analysis.exchange.kinds import find_runs
    from core_sdk._analysis.exchange.processes import import_runs as imported

    runs = find_runs(path)
    counts = {"taken": 0, "known": 0, "empty": 0}
    has_losses = False
    for run, trial_id, fate in imported(make_home(), path, runs, name):
        counts[fate] += 1
        if trial_id is not None:
            click.echo(f"{run.where} is trial {trial_id}")
        for loss in run.losses:
            say(f"{run.where}: {loss}")
        has_losses |= bool(run.losses)
    empty = f", {counts['empty']} hold nothing" if counts["empty"] else ""
    click.echo(f"{counts['taken']} runs were imported, {counts['known']} were here already{empty}")
    if has_losses:
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _plain(value: Any) -> Any:
    """Returns a value of DuckDB's as one that JSON has."""
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat(" ") if isinstance(value, datetime.datetime) else value.isoformat()
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value)


def _print_table(names: Sequence[str], rows: Iterator[list[Any]]) -> None:
    shown = list(islice(rows, _MAX_SHOWN))
    if not shown:
        click.echo("no rows")
        return
    columns = [_column(name, place, shown[0][place]) for place, name in enumerate(names)]
    print_table(columns, shown)
    if next(rows, None) is not None:
        say(f"these are the first {_MAX_SHOWN} rows: --csv and --json print all")


def _column(name: str, place: int, example: Any) -> Column[list[Any]]:
    def text(row: list[Any]) -> object:
        value = row[place]
        return format_number(value) if type(value) in (int, float) else value

    return Column(name, text, isinstance(example, (int, float)))
