"""The points of series in blocks of columns, each a row of `block`. A row for each point takes far longer to insert.

The blocks of a series follow each other: each begins behind the last point of the one before. No block holds both
visible and superseded points, so that questions about whole series are answered without reading points.
"""

from __future__ import annotations

import math
import operator
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec

from core_sdk.records import MAX_INT, Metric

MAX_POINTS = 1024
_MIN_BYTES = 2048
"""The last block grows until its values have this size. It is written again whenever it grows."""

_pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode
"""Returns the values of a block: numbers with their type and bits, or texts."""

_COLUMNS = "rowid, series_id, last_steps, last_time, steps, times, numbers"
_OF_POINT = f"""SELECT {_COLUMNS} FROM block WHERE series_id = ? AND (last_steps, last_time) >= (?, ?)
    ORDER BY last_steps, last_time LIMIT 1"""
_LAST = f"""SELECT {_COLUMNS} FROM (
        SELECT rowid, * FROM block WHERE series_id = ? ORDER BY last_steps DESC, last_time DESC LIMIT 1
    ) WHERE length(numbers) < {_MIN_BYTES}"""
_INSERT = "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Points(NamedTuple):
    """Points of a series, or of several that were reported together, in the order of steps and times."""

    steps: array[int]
    times: array[float]
    values: list[Any]

    def part(self, begin: int, end: int) -> Points:
        return Points(self.steps[begin:end], self.times[begin:end], self.values[begin:end])


def in_order(parts: Sequence[tuple[Sequence[int], Sequence[float], Sequence[Any]]]) -> Points:
    """Joins points and sorts them. Equal points cannot stand in a journal twice, unless its lines were copied."""
    steps, times, values = (list(chain.from_iterable(column)) for column in zip(*parts, strict=True))
    if any(map(operator.ge, steps, islice(steps, 1, None))):
        points: dict[tuple[int, float], Any] = {}
        for step, time, value in zip(steps, times, values, strict=True):
            points.setdefault((step, time), value)
        keys = sorted(points)
        steps, times, values = [step for step, _ in keys], [time for _, time in keys], [points[key] for key in keys]
    return Points(array("q", steps), array("d", times), values)


def insert_points(connection: sqlite3.Connection, series_id: int, points: Points) -> None:
    """Inserts points of a series into the blocks to which they belong. Most lie behind the last block."""
    while points.steps:
        key = points.steps[0], points.times[0]
        if (block := connection.execute(_OF_POINT, (series_id, *key)).fetchone()) is not None:
            ties = bisect_left(points.steps, block["last_steps"]), bisect_right(points.steps, block["last_steps"])
            num_points = bisect_right(points.times, block["last_time"], *ties)
        else:
            block = connection.execute(_LAST, (series_id,)).fetchone()
            num_points = len(points.steps)
        inserted, points = points.part(0, num_points), points.part(num_points, len(points.steps))
        _insert(connection, series_id, inserted if block is None else in_order([_take(connection, block), inserted]))


def split_block(connection: sqlite3.Connection, rowid: int, last_steps: int) -> None:
    """Splits a block behind its points up to `last_steps`."""
    block = connection.execute(f"SELECT {_COLUMNS} FROM block WHERE rowid = ?", (rowid,)).fetchone()
    points = _take(connection, block)
    end = bisect_right(points.steps, last_steps)
    _insert(connection, block["series_id"], points.part(0, end))
    _insert(connection, block["series_id"], points.part(end, len(points.steps)))


def read_points(connection: sqlite3.Connection, series_id: int, first: int, last: int) -> Points:
    """Returns the points of a series from a first to a last step."""
    query = """SELECT steps, times, numbers FROM block WHERE series_id = ? AND last_steps >= ? AND first_steps <= ?
        ORDER BY last_steps, last_time"""
    found = Points(array("q"), array("d"), [])
    for steps, times, numbers in connection.execute(query, (series_id, first, last)):
        found.steps.frombytes(steps)
        found.times.frombytes(times)
        found.values.extend(unpack(numbers))
    return found.part(bisect_left(found.steps, first), bisect_right(found.steps, last))


def numbers_in(values: list[Metric], *, only_finite: bool = False) -> list[Metric]:
    """Returns the values that are not NaN, or those that are finite."""
    if math.isfinite(sum(values)):
        return values  # each of them is finite
    return [value for value in values if math.isfinite(value) or not (only_finite or math.isnan(value))]


def _take(connection: sqlite3.Connection, block: sqlite3.Row) -> Points:
    """Removes a block and returns its points."""
    connection.execute("DELETE FROM block WHERE rowid = ?", (block["rowid"],))
    return Points(array("q", block["steps"]), array("d", block["times"]), unpack(block["numbers"]))


def _insert(connection: sqlite3.Connection, series_id: int, points: Points) -> None:
    """Inserts blocks of about equal size, which leaves room in each for points that come between."""
    num_points = len(points.steps)
    size = -(-num_points // -(-num_points // MAX_POINTS))
    for begin in range(0, num_points, size):
        steps, times, values = points.part(begin, begin + size)
        is_metric = isinstance(values[0], (int, float))
        numbers = numbers_in(values) if is_metric else []
        extremes = _comparable(min(numbers, default=None)), _comparable(max(numbers, default=None))
        figures = series_id, steps[-1], times[-1], steps[0], len(steps), *extremes, _pack(values[-1])
        connection.execute(_INSERT, (*figures, steps.tobytes(), _pack(values), times.tobytes()))


def _comparable(value: Metric | None) -> Metric | None:
    """Returns an equal number that SQLite can store: it has no int 2**63."""
    return float(value) if value == MAX_INT else value
