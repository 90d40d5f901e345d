"""Writes docs/board.md, the schema of `core-sdk board --json`, from the types that hold a board.

python docs/board_page.py
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import core_api_page

from core_sdk.client import Board, BoardLine

PAGE = Path(__file__).with_name("board.md")

INTRODUCTION = """\
# The fields of a board

<!-- Made by `python docs/board_page.py` from the types in core_sdk/_analysis/studies. -->

`core-sdk board --json` prints one object, which has all that the text of [a board](studies.md) may show.
Fields are added, and never renamed. Values that are not finite are the strings "NaN", "Infinity" and "-Infinity".
"""

TITLES = {Board: "The board", BoardLine: "A try"}
_NAMES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def text() -> str:
    return "\n".join([INTRODUCTION, *(line for kind in TITLES for line in _section(kind))])


def _section(kind: type) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    yield from (f"## {TITLES[kind]}\n", "| field | type | |", "|---|---|---|")
    for name, (_, told) in core_api_page.attributes(kind).items():
        yield f"| `{name}` | {_type(hints[name])} | {told} |"
    yield ""


def _type(hint: Any) -> str:
    """Returns the type of a field in JSON, in words."""
    if hint in TITLES:
        return f"[object](#{TITLES[hint].lower().replace(' ', '-')})"
    if get_origin(hint) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(hint))
    if get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in get_args(hint))
    if get_origin(hint) is Sequence:
        return f"array of {_type(get_args(hint)[0])}"
    return _NAMES[hint]


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(text())
