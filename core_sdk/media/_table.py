"""Tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_sdk._ground.records import Media, check_text, to_json
from core_sdk.errors import MediaError
from core_sdk.media._content import described, encode_json


class Table(Media):
    """A table of numbers, texts, bools and None.

    It is made from rows with the names of their `columns`, from mappings of the names to values, or from a DataFrame.
    """

    def __init__(self, rows: Any, columns: Sequence[str] | None = None, *, caption: str = "") -> None:
        """Raises `MediaError` or `MediaTooLargeError`."""
        if hasattr(rows, "itertuples"):
            columns = list(rows.columns) if columns is None else columns
            rows = rows.itertuples(index=False, name=None)
        names, found = _tabulated(list(rows), columns)
        try:
            cells = [[to_json(_cell(cell), f"row {number}") for cell in row] for number, row in enumerate(found)]
        except (TypeError, ValueError) as error:
            raise MediaError("table", f"cannot be kept: {error}") from error
        content = encode_json("table", {"columns": names, "rows": cells})
        super().__init__(described("table", "application/json", content, caption), content)


def _tabulated(rows: list[Any], columns: Sequence[str] | None) -> tuple[list[str], list[list[Any]]]:
    if columns is None:
        if not rows or not all(isinstance(row, Mapping) for row in rows):
            raise MediaError("table", "needs the names of its columns")
        columns = list(dict.fromkeys(name for row in rows for name in row))
    found = [[row.get(name) for name in columns] if isinstance(row, Mapping) else list(row) for row in rows]
    for number, row in enumerate(found):
        if len(row) != len(columns):
            raise MediaError("table", f"has {len(row)} values in row {number}, and {len(columns)} columns")
    return [check_text("the column", name) for name in columns], found


def _cell(value: Any) -> Any:
    """Returns a cell as it is kept. Times and the like become text."""
    if isinstance(value, (Mapping, list, tuple)) or (isinstance(value, Iterable) and not isinstance(value, str)):
        raise TypeError(f"a cell is a {type(value).__name__}; it must be a number, a text, a bool or None")
    if value is None or isinstance(value, (bool, int, float, str)) or hasattr(value, "item"):
        return value
    return str(value)
