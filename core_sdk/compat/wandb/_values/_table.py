"""Tables that a script fills row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core_sdk import media
from core_sdk._ground.records import Media

_COLUMNS = ("Input", "Output", "Expected")


class Table:
    """Rows under the names of columns. It is kept as it is when it is logged."""

    def __init__(
        self,
        columns: Sequence[Any] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        *,
        title: str = "",
        **unused: Any,
    ) -> None:
        """Takes rows as `data` or `rows`, or a DataFrame; types of columns and modes of logging have no meaning."""
        given = dataframe if dataframe is not None else data if data is not None else rows
        if hasattr(given, "itertuples"):
            columns = list(given.columns) if columns is None else columns
            given = given.itertuples(index=False, name=None)
        self.columns = [str(column) for column in (_COLUMNS if columns is None else columns)]
        self.data: list[list[Any]] = []
        self._title = title
        for row in () if given is None else given:
            self.add_data(*row)

    def add_data(self, *row: Any) -> None:
        """Adds a row. Raises `ValueError` unless it has a value for each column."""
        if len(row) != len(self.columns):
            raise ValueError(f"the row has {len(row)} values, and the table {len(self.columns)} columns")
        self.data.append(list(row))

    def add_column(self, name: str, data: Iterable[Any]) -> None:
        """Adds a column. Raises `ValueError` unless it has a value for each row."""
        values = list(data)
        if self.data and len(values) != len(self.data):
            raise ValueError(f"the column {name!r} has {len(values)} values, and the table {len(self.data)} rows")
        self.columns.append(str(name))
        rows = self.data or [[] for _ in values]
        self.data = [[*row, value] for row, value in zip(rows, values, strict=True)]

    def get_column(self, name: str) -> list[Any]:
        """Returns the values of a column."""
        return [row[self.columns.index(name)] for row in self.data]

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yields the number of each row, from 0, and the row."""
        return iter(enumerate(self.data))

    def as_medium(self) -> media.Table:
        """Returns the table as it is now. In the place of a medium stands its kind and the number of its row."""
        return media.Table([[_cell(value, number) for value in row] for number, row in enumerate(self.data, 1)],
                           columns=self.columns, caption=self._title)  # fmt: skip

    def media_by_column(self) -> dict[str, list[Media]]:
        """Returns the media of each column that has some."""
        columns = {
            name: [value for value in self.get_column(name) if isinstance(value, Media)] for name in self.columns
        }
        return {name: found for name, found in columns.items() if found}


def _cell(value: Any, number: int) -> Any:
    if isinstance(value, Media):
        return f"{value.file.kind} of row {number}"
    if hasattr(value, "tolist"):
        value = value.tolist()
    return str(value) if isinstance(value, (list, tuple, dict)) else value
