"""Prints results: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import dataclasses
import enum
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from core_sdk.records import nonfinite_to_text, plain, strict_json
from core_sdk.render.tables import Column, print_properties, print_table
from core_sdk.render.text import printable

# A spreadsheet runs a cell that begins like this as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

_Row = TypeVar("_Row")
Properties = Mapping[str, object]
"""The properties of a thing by name, for people. A list is shown as lines, and an empty value is left out."""

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


def choose_format(as_json: bool, as_csv: bool = False) -> Format:
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


def print_one(value: Any, told: Properties | str, as_json: bool) -> None:
    """Prints all of `value` as JSON, or `told`, properties or one line, for people."""
    if as_json:
        print_object(value)
    elif isinstance(told, str):
        typer.echo(printable(told))
    else:
        print_properties(told)


def confirm(question: str, is_confirmed: bool) -> None:
    """Ends the command unless the person agrees."""
    if not is_confirmed:
        typer.confirm(question, abort=True, err=True)


def print_object(value: Any) -> None:
    print(json.dumps(plain(value), allow_nan=False, indent=2))


def print_list(values: Iterable[Any]) -> None:
    """Prints one element per line, each as soon as the iterable yields it."""
    print_elements(map(strict_json, values))


def print_elements(texts: Iterable[str]) -> None:
    """Prints a list, like `print_list`, of elements that are JSON already."""
    remaining = iter(texts)
    first = next(remaining, None)
    if first is None:
        print("[]")
        return
    sys.stdout.write(f"[\n{first}")
    sys.stdout.writelines(f",\n{text}" for text in remaining)
    print("\n]")


def print_csv(rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows, of which the first may be the names of the columns."""
    csv.writer(sys.stdout, lineterminator="\n").writerows([cell(value) for value in row] for row in rows)


def cell(value: Any) -> Any:
    """Puts a `'` before text that a spreadsheet would run as a formula; lists, mappings and records become JSON."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    if isinstance(value, float):
        return nonfinite_to_text(value)
    if isinstance(value, (dict, list, tuple)) or dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        return strict_json(value)
    return "" if value is None else value
