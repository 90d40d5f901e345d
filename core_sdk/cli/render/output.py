"""How results are printed: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer

from core_sdk.cli.render.csv import print_csv
from core_sdk.cli.render.json import print_list, print_object
from core_sdk.cli.render.tables import Column, print_properties, print_table

_Row = TypeVar("_Row")

AsJson = Annotated[
    bool,
    typer.Option("--json", help='Print JSON; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity".'),
]
AsCsv = Annotated[
    bool, typer.Option("--csv", help="Print CSV; text that a spreadsheet would take for a formula gets a leading '.")
]


class Format(enum.Enum):
    TABLE = enum.auto()
    JSON = enum.auto()
    CSV = enum.auto()


def choose_format(as_json: bool, as_csv: bool) -> Format:
    if as_json and as_csv:
        raise typer.BadParameter("give --json or --csv, not both")
    if as_json:
        return Format.JSON
    return Format.CSV if as_csv else Format.TABLE


def print_rows(
    rows: Sequence[_Row], row_type: type[_Row], columns: Sequence[Column[_Row]], form: Format, nothing: str
) -> None:
    """Prints all rows, dataclass instances of `row_type`.

    A table shows only `columns`, or the text `nothing` if there are no rows.
    """
    if form is Format.JSON:
        print_list(rows)
    elif form is Format.CSV:
        names = [field.name for field in dataclasses.fields(row_type)]  # type: ignore[arg-type]
        print_csv([names, *([getattr(row, name) for name in names] for row in rows)])
    elif rows:
        print_table(columns, rows)
    else:
        typer.echo(nothing)


def print_one(value: Any, properties: Mapping[str, str | list[str]], as_json: bool) -> None:
    """Prints all of `value` as JSON, or the `properties` of it that a person wants to know."""
    if as_json:
        print_object(value)
    else:
        print_properties(properties)


def confirm(question: str, is_confirmed: bool) -> None:
    """Ends the command unless the person agrees."""
    if not is_confirmed:
        typer.confirm(question, abort=True, err=True)
