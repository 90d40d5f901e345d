"""The series of one attempt while its journal is read, with the points that wait to be inserted."""

from __future__ import annotations

import sqlite3
from typing import Any

from core_sdk.tracking.superseding import EVERYTHING

SeriesKey = tuple[bool, str, str]
"""Whether the series is one of the profiler's, its group, and the metric's name."""

Point = tuple[int, int, int, Any]
"""A row of `point`."""

_WIDEN_EXTREMES = """UPDATE series SET minimum = min(ifnull(minimum, :minimum), :minimum),
    maximum = max(ifnull(maximum, :maximum), :maximum) WHERE id = :id"""


class SeriesTable(dict[SeriesKey, tuple[int, list[Point]]]):
    """Maps each series to its id and its waiting points. Looking up an unknown series inserts it into the database."""

    def __init__(self, connection: sqlite3.Connection, attempt_id: int, rank: int) -> None:
        self._connection = connection
        self._attempt_id = attempt_id
        self._rank = rank
        query = "SELECT is_profile, group_name, name, id FROM series WHERE attempt_id = ?"
        for is_profile, group, name, series_id in connection.execute(query, (attempt_id,)):
            self[bool(is_profile), group, name] = series_id, []

    def __missing__(self, key: SeriesKey) -> tuple[int, list[Point]]:
        insert = """INSERT INTO series (attempt_id, is_profile, group_name, name, is_shown, visible_until)
            VALUES (?, ?, ?, ?, ?, ?)"""
        is_profile, *_ = key
        # Whether a report of another rank is shown depends on the ranks below it, and is found when all are read.
        row = (self._attempt_id, *key, is_profile or self._rank == 0, EVERYTHING)
        series_id = self._connection.execute(insert, row).lastrowid or 0
        self[key] = series_id, []
        return self[key]

    def insert_points(self) -> int:
        """Inserts the points that wait, and returns their number."""
        num_points = 0
        # Series by series, so that each page of the database is touched only once, and filled.
        for (_, _, name), (series_id, points) in self.items():
            if not points:
                continue
            # Equal points cannot stand in a journal twice, unless its lines were copied.
            self._connection.executemany("INSERT INTO point VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", points)
            if name:
                self._widen_extremes(series_id, points)
            num_points += len(points)
            points.clear()
        return num_points

    def _widen_extremes(self, series_id: int, points: list[Point]) -> None:
        numbers = [float(value) if type(value) is str else value for _, _, _, value in points if value is not None]
        if numbers:
            row = {"id": series_id, "minimum": min(numbers), "maximum": max(numbers)}
            self._connection.execute(_WIDEN_EXTREMES, row)
