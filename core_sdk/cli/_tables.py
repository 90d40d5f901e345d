"""Tables for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core_sdk.cli._text import printable

_Row = TypeVar("_Row")

_ENDLESS = 1_000_000


@dataclass(frozen=True)
class Column(Generic[_Row]):
    title: str
    text: Callable[[_Row], str]
    is_number: bool = False


def print_table(columns: Sequence[Column[_Row]], rows: Iterable[_Row], *, title: str | None = None) -> None:
    table = Table(box=SIMPLE_HEAD, title=None if title is None else Text(printable(title)), title_justify="left")
    for column in columns:
        table.add_column(
            Text(printable(column.title)), justify="right" if column.is_number else "left", overflow="fold"
        )
    for row in rows:
        # Text, not str: rich would read [brackets] in a str as its markup.
        table.add_row(*(Text(printable(column.text(row))) for column in columns))
    _print(table)


def print_properties(properties: Mapping[str, str | list[str]]) -> None:
    """A name and its value, which may be a list of lines, beside each other; empty values are left out."""
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in properties.items():
        if value:
            lines = [value] if isinstance(value, str) else value
            table.add_row(Text(printable(name)), Text("\n".join(map(printable, lines))))
    _print(table)


def _print(table: Table) -> None:
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        # A program, or a file: a row is a line there, however long.
        console.width = max(
            console.width, console.measure(table, options=console.options.update(max_width=_ENDLESS)).maximum
        )
    console.print(table)
