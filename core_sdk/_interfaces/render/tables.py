"""Tables for people, laid out for the width of the terminal: `COLUMNS`, or 80 where there is none."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

from core_sdk._interfaces.render.text import printable

_Row = TypeVar("_Row")

_MARGIN = " "
_GAP = "  "
_MIN_CUT_WIDTH = 12
_OF_COUNT = 80
"""The bytes that the count of rows left out may take."""
_MAX_NAMED = 12
MOST_NAMES = 20
"""The number of metrics or hyperparameters that a table considers: its time must not depend on how many there are."""


@dataclass(frozen=True)
class Column(Generic[_Row]):
    title: str
    value: Callable[[_Row], object]
    """Returns what is shown of a row, as text; None is shown as nothing."""
    is_number: bool = False
    can_be_cut: bool = False
    """Long texts end in "…" where they do not fit. Anything else, such as an id, is shown whole or not at all."""


def print_table(
    columns: Sequence[Column[_Row]],
    rows: Iterable[_Row],
    *,
    title: str | None = None,
    num_more: int = 0,
    most_bytes: int = 0,
    is_first_kept: bool = False,
) -> None:
    """Prints a line for each row. The columns are ordered by importance: the last ones are left out if too wide.

    The first column is always shown. Other columns are left out if they have no text. `num_more` is the number of
    further columns, for which no terminal has room. With `most_bytes`, the first or the last rows are shown that fit.
    """
    rows = list(rows)
    texts = {column: [_text(column.value(row)) for row in rows] for column in columns}
    shown = [column for column in columns if column is columns[0] or any(texts[column])]
    titles = {column: printable(shortened(column.title)) for column in shown}
    natural = [max(map(cell_width, (titles[column], *texts[column]))) for column in shown]
    total = shutil.get_terminal_size().columns
    widths = fitted(natural, [column.can_be_cut for column in shown], total - len(_MARGIN))
    layout = [(column, width) for column, width in zip(shown, widths, strict=True) if width]
    if title is not None:
        sys.stdout.write(f"{printable(title)}\n")
    head = _line((titles[column], width, column.is_number) for column, width in layout)
    rule = ("─" if _is_unicode() else "-") * (sum(widths) + len(_GAP) * (len(layout) - 1))
    lines = [
        f"{_line((texts[column][index], width, column.is_number) for column, width in layout)}\n"
        for index in range(len(rows))
    ]
    left_out = [titles[column] for column, width in zip(shown, widths, strict=True) if not width]
    notes = f"{_MARGIN}(not shown in {total} columns: {_some(left_out, num_more)})\n" if left_out else ""
    if most_bytes:
        room = most_bytes - len(f"{head}{rule}{notes}".encode()) - _OF_COUNT
        fitting = _fitting(lines if is_first_kept else lines[::-1], room)
        if len(fitting) < len(lines):
            notes += f"{_MARGIN}({len(lines) - len(fitting)} rows left out; --limit 0 shows all)\n"
        lines = fitting if is_first_kept else fitting[::-1]
    sys.stdout.writelines([f"{head}\n{_MARGIN}{rule}\n", *lines, notes, "\n"])


def _fitting(lines: Sequence[str], most_bytes: int) -> list[str]:
    """Returns the first lines that have no more bytes together."""
    sizes = accumulate(len(line.encode()) for line in lines)
    return [line for line, size in zip(lines, sizes, strict=True) if size <= most_bytes]


def _some(names: Sequence[str], num_more: int) -> str:
    """Returns the first names, and how many more there are."""
    more = max(0, len(names) - _MAX_NAMED) + num_more
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def shortened(name: str) -> str:
    """Returns a name that takes half of the terminal's width at most, without its middle if it is longer."""
    most = max(_MIN_CUT_WIDTH, shutil.get_terminal_size().columns // 2)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}{_mark()}{name[-(most // 2) :]}"


def fitted(widths: Sequence[int], can_be_cut: Sequence[bool], available: int) -> list[int]:
    """Returns the width that each column gets; 0 for one that is left out.

    From the left, each column is taken that still fits, cut if necessary. The remaining room makes cut columns wider.
    """
    chosen: list[int] = []
    for index, (width, is_cut) in enumerate(zip(widths, can_be_cut, strict=True)):
        needed = min(width, _MIN_CUT_WIDTH) if is_cut else width
        gap = len(_GAP) if index else 0
        fits = index == 0 or needed + gap <= available
        chosen.append(needed if fits else 0)
        available -= needed + gap if fits else 0
    for index, width in enumerate(widths):
        if chosen[index]:
            extra = max(0, min(width - chosen[index], available))
            chosen[index] += extra
            available -= extra
    return chosen


def print_properties(properties: Mapping[str, object]) -> None:
    """Prints each name and its value, which may be a list of lines. Empty values are left out."""
    shown = {printable(name): value for name, value in properties.items() if value not in (None, "", [])}
    name_width = max(map(cell_width, shown), default=0)
    for name, value in shown.items():
        for index, line in enumerate(value if isinstance(value, list) else [value]):
            sys.stdout.write(f"{_MARGIN}{_aligned('' if index else name, name_width)}{_GAP}{_text(line)}\n")


def _text(value: object) -> str:
    return "" if value is None else printable(str(value))


def cell_width(text: str) -> int:
    """Returns the width in cells of a terminal; letters of some scripts take two, and combining marks none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # takes longer to import than most tables to print

    return cell_len(text)


def _line(cells: Iterable[tuple[str, int, bool]]) -> str:
    return (_MARGIN + _GAP.join(_aligned(text, width, is_number) for text, width, is_number in cells)).rstrip()


def _aligned(text: str, width: int, is_number: bool = False) -> str:
    missing = width - cell_width(text)
    if missing < 0:
        return _cut(text, width)
    return " " * missing + text if is_number else text + " " * missing


def _cut(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1) + _mark()


def _mark() -> str:
    """Returns the sign for what is left out of a text."""
    return "…" if _is_unicode() else "~"


def _is_unicode() -> bool:
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")
