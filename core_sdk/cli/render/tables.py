"""Tables for people."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from core_sdk.cli.render.text import printable

_Row = TypeVar("_Row")

_ENDLESS = 1_000_000
_MARGIN = "  "
_GAP = "   "


@dataclass(frozen=True)
class Column(Generic[_Row]):
    title: str
    text: Callable[[_Row], str]
    is_number: bool = False


def print_table(columns: Sequence[Column[_Row]], rows: Iterable[_Row], *, title: str | None = None) -> None:
    """A row is a line, except where it does not fit a terminal."""
    # Lines of our own: rich's tables take half a millisecond for each row, and there may be ten thousand.
    console = Console(highlight=False)
    titles = [printable(column.title) for column in columns]
    texts = [[printable(column.text(row)) for column in columns] for row in rows]
    widths = [max(map(_width, column)) for column in zip(titles, *texts, strict=True)]
    if sys.stdout.isatty():
        widths = fitted(widths, console.width - 2 * len(_MARGIN) - len(_GAP) * (len(columns) - 1))
    are_numbers = [column.is_number for column in columns]
    head = list(_lines(titles, widths, are_numbers))
    rule = ("-" if console.options.ascii_only else "─") * (_width(head[0]) - 2)
    if title is not None:
        console.print(Text(printable(title)), style="italic", soft_wrap=True)
    console.print("", Text("\n".join(head)), sep="\n", style="bold", soft_wrap=True)
    sys.stdout.write(f" {rule} \n")
    sys.stdout.writelines(f"{line}\n" for text in texts for line in _lines(text, widths, are_numbers))
    sys.stdout.write("\n")


def fitted(widths: Sequence[int], available: int) -> list[int]:
    """The widest columns give way until all fit; none vanishes."""
    limit = max(widths)
    while limit > 1 and sum(min(width, limit) for width in widths) > available:
        limit -= 1
    return [min(width, limit) for width in widths]


def _lines(texts: Sequence[str], widths: Sequence[int], are_numbers: Sequence[bool]) -> Iterator[str]:
    folded = [_folded(text, width) for text, width in zip(texts, widths, strict=True)]
    for parts in itertools.zip_longest(*folded, fillvalue=""):
        cells = map(_aligned, parts, widths, are_numbers)
        yield f"{_MARGIN}{_GAP.join(cells)}{_MARGIN}"


def _folded(text: str, width: int) -> list[str]:
    if _width(text) <= width:
        return [text]
    if " " not in text:
        return chop_cells(text, width)
    return [line.plain for line in Text(text).wrap(Console(), width, overflow="fold")]


def _aligned(text: str, width: int, is_number: bool) -> str:
    if text.isascii():
        return text.rjust(width) if is_number else text.ljust(width)
    return " " * (width - cell_len(text)) + text if is_number else set_cell_size(text, width)


def _width(text: str) -> int:
    """In cells of a terminal; letters of some scripts take two, and combining marks none."""
    return len(text) if text.isascii() else cell_len(text)


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
