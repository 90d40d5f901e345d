"""`core-sdk sql` and `core-sdk export`: the records for tools that speak SQL or read Parquet."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from core_sdk._ground.records import format_number
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.output import AsCsv, AsJson, choose_form, print_csv, print_list
from core_sdk._interfaces.render.tables import Column, print_table

_MAX_SHOWN = 200


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query of DuckDB's SQL; -: read it from stdin.")],
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Ask a question in SQL over the tables experiments, trials, hparams, metrics and checkpoints.

    They are copies in memory: nothing that a query does changes a record, and it reads no other file. `describe trials`
    shows the columns of a table. Needs "core-sdk[sql]".
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
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="It is made if it does not exist.")],
) -> None:
    """Write the tables of `core-sdk sql` as Parquet files, in place of those of an earlier export.

    `core-sdk trial export` writes trials that another home can take. Needs "core-sdk[sql]".
    """
    from core_sdk._analysis.exchange.database import export_parquet

    for path in export_parquet(open_home(), directory):
        typer.echo(path)


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
        typer.echo("no rows")
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
