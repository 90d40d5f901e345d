"""CSV for programs and spreadsheets."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from core_sdk.records import nonfinite_to_text, strict_json

# A spreadsheet runs a cell that begins like this as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


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
