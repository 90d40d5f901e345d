"""The series of one attempt while its journal is read, with the points that wait to be inserted."""

from __future__ import annotations

import sqlite3
from typing import Any

from core_sdk.tracking.superseding import EVERYTHING

FlatPoints = list[Any]
"""Rows of `point`, one after the other: tuples would take longer to make."""

_NUM_COLUMNS = 4

# Many rows to a statement take SQLite less than half the time that one does.
_POINTS_PER_STATEMENT = 64


class SeriesTable(dict[str, "SeriesGroup"]):
    """By group; a group or series that is new is made when it is first asked for."""

    def __init__(self, connection: sqlite3.Connection, attempt_id: int) -> None:
        self._connection = connection
        self._attempt_id = attempt_id
        self._profile: dict[str, SeriesGroup] = {}
        for row in connection.execute("SELECT * FROM series WHERE attempt_id = ?", (attempt_id,)):
            group = self.profile(row["group_name"]) if row["is_profile"] else self[row["group_name"]]
            group[row["name"]] = row["id"], []

    def __missing__(self, group: str) -> SeriesGroup:
        self[group] = SeriesGroup(self, group, is_profile=False)
        return self[group]

    def profile(self, group: str) -> SeriesGroup:
        """One of the profiler's groups, which may have the name of one of the script's."""
        if group not in self._profile:
            self._profile[group] = SeriesGroup(self, group, is_profile=True)
        return self._profile[group]

    def insert_points(self) -> int:
        """Inserts the points that wait, and returns their number."""
        flat = self._take_points()
        num_points = len(flat) // _NUM_COLUMNS
        num_whole = num_points // _POINTS_PER_STATEMENT * _POINTS_PER_STATEMENT
        self._insert_flat(flat[: num_whole * _NUM_COLUMNS], _POINTS_PER_STATEMENT)
        self._insert_flat(flat[num_whole * _NUM_COLUMNS :], 1)
        return num_points

    def insert_series(self, group: str, name: str, *, is_profile: bool) -> int:
        row = self._attempt_id, is_profile, group, name, EVERYTHING
        insert = "INSERT INTO series (attempt_id, is_profile, group_name, name, visible_until) VALUES (?, ?, ?, ?, ?)"
        return int(self._connection.execute(insert, row).lastrowid or 0)

    def _take_points(self) -> FlatPoints:
        """The points series by series, so that each page of the database is touched only once, and filled."""
        taken: FlatPoints = []
        for group in (*self.values(), *self._profile.values()):
            for _, points in group.values():
                taken += points
                points.clear()
        return taken

    def _insert_flat(self, flat: FlatPoints, points_per_statement: int) -> None:
        size = points_per_statement * _NUM_COLUMNS
        if flat:
            rows = [tuple(flat[start : start + size]) for start in range(0, len(flat), size)]
            self._connection.executemany(_insert_sql(points_per_statement), rows)


class SeriesGroup(dict[str, tuple[int, FlatPoints]]):
    """By metric: the series' id and its waiting points."""

    def __init__(self, table: SeriesTable, group: str, *, is_profile: bool) -> None:
        self._table = table
        self._group = group
        self._is_profile = is_profile

    def __missing__(self, name: str) -> tuple[int, FlatPoints]:
        self[name] = self._table.insert_series(self._group, name, is_profile=self._is_profile), []
        return self[name]


def _insert_sql(num_points: int) -> str:
    row = f"({', '.join('?' * _NUM_COLUMNS)})"
    # Equal points cannot stand in a journal twice, unless its lines were copied.
    return f"INSERT INTO point VALUES {', '.join([row] * num_points)} ON CONFLICT DO NOTHING"
