"""Prints results: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

import click
import msgspec

from core_sdk._ground.records import field_names, nonfinite_to_text, plain, strict_json
from core_sdk._interfaces.render.fields import take
from core_sdk._interfaces.render.tables import Column, print_properties, print_table
from core_sdk._interfaces.render.text import HarmlessOutput, printable

# A spreadsheet runs a cell that begins like this as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

_STDOUT = 1
LIMIT = 40
"""The number of rows of a list in a table that no terminal shows."""
_MOST_BYTES = 3800
"""The size of such a table, beside what stderr says."""

_Row = TypeVar("_Row")
Properties = Mapping[str, object]
"""The properties of a thing by name, for people. A list is shown as lines, and an empty value is left out."""


@dataclass(frozen=True)
class Form:
    """The form in which results are printed: a table, unless it is JSON or CSV."""

    is_json: bool = False
    is_csv: bool = False
    fields: tuple[str, ...] = ()
    """The fields that JSON and CSV have; empty for all."""
    most_bytes: int = 0
    """How much a table may be; 0 for any size."""
    is_first_kept: bool = False
    """Whether the last rows are left out of a table that would be larger, and not the first."""

    @property
    def is_table(self) -> bool:
        return not (self.is_json or self.is_csv)


def limited(rows: list[_Row], limit: int | None, form: Form, *, are_ordered: bool = False) -> tuple[list[_Row], Form]:
    """Returns the last rows within the limit, or the first ones if they are ordered, and the form to print them in.

    Without a limit these are all, unless it is a table that no terminal shows: it is read by a program, or a model
    that pays by the token, and is shorter than 4 KB. Stderr then says how many rows there are.
    """
    is_short = limit is None and form.is_table and not sys.stdout.isatty()
    if is_short:
        form = dataclasses.replace(form, most_bytes=_MOST_BYTES, is_first_kept=are_ordered)
    most = limit if limit is not None else LIMIT if is_short else 0
    if not most or len(rows) <= most:
        return rows, form
    if limit is None:
        which = "first" if are_ordered else "newest"
        print(f"core-sdk: these are the {which} {most} of {len(rows)}; --limit 0 shows all", file=sys.stderr)
    return rows[:most] if are_ordered else rows[-most:], form


def print_rows(
    rows: Sequence[_Row], row_type: type[_Row], columns: Sequence[Column[_Row]], form: Form, nothing: str
) -> None:
    """Prints all rows, structs or dataclass instances of `row_type`.

    A table shows only `columns`, or the text `nothing` if there are no rows.
    """
    if form.is_json:
        print_list(rows, form.fields)
    elif form.fields:
        print_fields_as_csv(rows, form.fields)
    elif form.is_csv:
        names = field_names(row_type)
        print_csv([names, *([getattr(row, name) for name in names] for row in rows)])
    elif rows:
        print_table(columns, rows, most_bytes=form.most_bytes, is_first_kept=form.is_first_kept)
    else:
        click.echo(nothing)


def print_one(value: Any, told: Properties | str, form: Form) -> None:
    """Prints all of `value` as JSON, or `told`, properties or one line, for people."""
    if form.is_json:
        print_object(value, form.fields)
    elif isinstance(told, str):
        click.echo(printable(told))
    else:
        print_properties(told)


def confirm(question: str, is_confirmed: bool) -> None:
    """Ends the command unless the person agrees."""
    if not is_confirmed:
        click.confirm(question, abort=True, err=True)


def print_object(value: Any, fields: Sequence[str] = ()) -> None:
    print(json.dumps(chosen(value, fields), allow_nan=False, indent=2))


def print_list(values: Iterable[Any], fields: Sequence[str] = ()) -> None:
    """Prints one element per line, each as soon as the iterable yields it."""
    print_elements(strict_json(chosen(value, fields) if fields else value) for value in values)


def print_fields_as_csv(values: Iterable[Any], fields: Sequence[str]) -> None:
    """Prints CSV with these fields of each value as columns."""
    rows = iter(fields_as_csv(values, fields))
    first = list(islice(rows, 1))  # a name that is unknown fails before anything is printed
    print_csv(chain([fields], first, rows))


def fields_as_csv(values: Iterable[Any], fields: Sequence[str]) -> Iterator[list[Any]]:
    """Yields a row of CSV for each value."""
    return (list(chosen(value, fields).values()) for value in values)


def chosen(value: Any, fields: Sequence[str]) -> Any:
    """Returns the value as JSON has it, with only these fields. Raises `click.BadParameter`."""
    known = plain(value)
    try:
        return take(known, fields) if fields else known
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--fields") from None


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


def output_writer() -> Callable[[bytes], None]:
    """Returns a function that writes what scripts have written: to a terminal only what cannot do anything to it."""
    harmless = HarmlessOutput().feed if os.isatty(_STDOUT) else bytes

    def write(content: bytes) -> None:
        content = harmless(content)
        while content:
            content = content[os.write(_STDOUT, content) :]

    return write


def print_csv(rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows, of which the first may be the names of the columns. On a terminal, texts are made `printable`."""
    shown = _printable_cell if sys.stdout.isatty() else cell
    csv.writer(sys.stdout, lineterminator="\n").writerows([shown(value) for value in row] for row in rows)


def _printable_cell(value: Any) -> Any:
    shown = cell(value)
    return printable(shown) if isinstance(shown, str) else shown


def cell(value: Any) -> Any:
    """Puts a `'` before text that a spreadsheet would run as a formula; lists, mappings and records become JSON."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else value
    if isinstance(value, float):
        return nonfinite_to_text(value)
    if isinstance(value, (dict, list, tuple)) or dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        return strict_json(value)
    return "" if value is None else value
