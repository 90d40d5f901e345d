"""The points of series in blocks of columns, each a row of `block`. A row for each point takes far longer to insert.

SQLite does not notice a flipped bit in a value, so each packed column ends with its checksum.

The blocks of a series follow each other: each begins behind the last point of the one before. No block holds both
visible and superseded points, so that questions about whole series are answered without reading points.
"""

from __future__ import annotations

import math
import operator
import sqlite3
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice
from typing import Any, NamedTuple

import google_crc32c
import msgspec

from core_sdk._ground.decoding import msgpack_decoder
from core_sdk._ground.records import MAX_INT, Metric
from core_sdk._home.index._database import DamagedError

MAX_POINTS = 1024
_MIN_BYTES = 2048
"""The last block grows until its values have this size. It is written again whenever it grows."""

_CHECKSUM_BYTES = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(Any)

_COLUMNS = "rowid, series_id, first_steps, last_steps, last_order, steps, times, orders, numbers"
_FROM_STEP = f"SELECT {_COLUMNS} FROM block WHERE series_id = ? AND last_steps >= ? ORDER BY last_steps, last_order"
_LAST = f"""SELECT {_COLUMNS} FROM (
        SELECT rowid, * FROM block WHERE series_id = ? ORDER BY last_steps DESC, last_order DESC LIMIT 1
    ) WHERE length(numbers) < {_MIN_BYTES}"""
_INSERT = "INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SeriesPoints(NamedTuple):
    """Points of a series, or of several that were reported together, by step, and by order within a step.

    The order is the number of the report in its journal. Clocks jump, and stand still.
    """

    steps: array[int]
    times: array[float]
    orders: array[int] | range
    values: list[Any]

    def part(self, begin: int, end: int) -> SeriesPoints:
        return SeriesPoints(
            self.steps[begin:end], self.times[begin:end], self.orders[begin:end], self.values[begin:end]
        )


def in_order(parts: Sequence[tuple[Sequence[int], Sequence[float], Sequence[int], list[Any]]]) -> SeriesPoints:
    """Joins points and sorts them."""
    if len(parts) == 1:
        steps, times, orders, values = parts[0]
    else:
        steps, times, orders, values = (list(chain.from_iterable(column)) for column in zip(*parts, strict=True))
    points = SeriesPoints(array("q", steps), array("d", times), array("I", orders), values)
    if any(map(operator.ge, steps, islice(steps, 1, None))):
        return chosen(points, sorted(range(len(steps)), key=list(zip(steps, orders, strict=True)).__getitem__))
    return points


def chosen(points: SeriesPoints, places: Sequence[int]) -> SeriesPoints:
    steps, times, orders, values = points
    return SeriesPoints(
        array("q", [steps[place] for place in places]),
        array("d", [times[place] for place in places]),
        array("I", [orders[place] for place in places]),
        [values[place] for place in places],
    )


def insert_points(connection: sqlite3.Connection, series_id: int, points: SeriesPoints) -> None:
    """Inserts points of a series into the blocks to which they belong. Most lie behind the last block."""
    while points.steps:
        if (block := _block_of(connection, series_id, points.steps[0])) is not None:
            end = bisect_left if block["last_steps"] > points.steps[0] else bisect_right
            num_points = end(points.steps, block["last_steps"])
        else:
            block = connection.execute(_LAST, (series_id,)).fetchone()
            num_points = len(points.steps)
        inserted, points = points.part(0, num_points), points.part(num_points, len(points.steps))
        if block is not None:
            inserted = in_order([_take(connection, block), inserted])
        _insert(connection, series_id, inserted)


def take_points(connection: sqlite3.Connection, series_id: int, steps: AbstractSet[int]) -> SeriesPoints:
    """Removes the points of a series at these steps, and returns them."""
    query = f"""SELECT {_COLUMNS} FROM block WHERE series_id = ? AND last_steps >= ? AND first_steps <= ?
        ORDER BY last_steps, last_order"""
    taken = []
    for block in connection.execute(query, (series_id, min(steps), max(steps))).fetchall():
        points = _take(connection, block)
        places = [[], []]  # type: list[list[int]]
        for place, step in enumerate(points.steps):
            places[step in steps].append(place)
        taken.append(chosen(points, places[True]))
        _insert(connection, series_id, chosen(points, places[False]))
    return in_order(taken)


def read_steps(connection: sqlite3.Connection, series_id: int, first: int, last: int) -> array[int]:
    """Returns the steps of a series from a first to a last one."""
    query = """SELECT steps FROM block WHERE series_id = ? AND last_steps >= ? AND first_steps <= ?
        ORDER BY last_steps, last_order"""
    steps = array("q")
    for (packed,) in connection.execute(query, (series_id, first, last)):
        steps.extend(unpack_steps(packed))
    return steps[bisect_left(steps, first) : bisect_right(steps, last)]


def split_block(connection: sqlite3.Connection, rowid: int, last_steps: int) -> None:
    """Splits a block behind its points up to `last_steps`."""
    block = connection.execute(f"SELECT {_COLUMNS} FROM block WHERE rowid = ?", (rowid,)).fetchone()
    points = _take(connection, block)
    end = bisect_right(points.steps, last_steps)
    _insert(connection, block["series_id"], points.part(0, end))
    _insert(connection, block["series_id"], points.part(end, len(points.steps)))


def read_points(connection: sqlite3.Connection, series_id: int, first: int, last: int) -> SeriesPoints:
    """Returns the points of a series from a first to a last step."""
    query = """SELECT steps, times, orders, numbers, last_order FROM block
        WHERE series_id = ? AND last_steps >= ? AND first_steps <= ? ORDER BY last_steps, last_order"""
    found = SeriesPoints(array("q"), array("d"), range(0), [])
    all_orders: array[int] | range = range(0)
    for steps, times, orders, numbers, last_order in connection.execute(query, (series_id, first, last)):
        more = unpack_steps(steps)
        found.steps.extend(more)
        found.times.extend(unpack_times(times))
        found.values.extend(unpack_values(numbers))
        all_orders = _joined(all_orders, unpack_orders(orders, last_order, len(more)))
    found = found._replace(orders=all_orders)
    return found.part(bisect_left(found.steps, first), bisect_right(found.steps, last))


def numbers_in(values: list[Metric], *, only_finite: bool = False) -> list[Metric]:
    """Returns the values that are not NaN, or those that are finite."""
    if math.isfinite(sum(values)):
        return values  # each of them is finite
    return [value for value in values if math.isfinite(value) or not (only_finite or math.isnan(value))]


def _take(connection: sqlite3.Connection, block: sqlite3.Row) -> SeriesPoints:
    """Removes a block and returns its points."""
    connection.execute("DELETE FROM block WHERE rowid = ?", (block["rowid"],))
    steps = unpack_steps(block["steps"])
    orders = unpack_orders(block["orders"], block["last_order"], len(steps))
    return SeriesPoints(steps, unpack_times(block["times"]), orders, unpack_values(block["numbers"]))


def _block_of(connection: sqlite3.Connection, series_id: int, step: int) -> sqlite3.Row | None:
    """Returns the block into which a new point of this step belongs; None if it lies behind all blocks."""
    found: sqlite3.Row | None = None
    for block in connection.execute(_FROM_STEP, (series_id, step)):
        if found is not None and block["first_steps"] > step:
            break
        found = block
    return found


def _insert(connection: sqlite3.Connection, series_id: int, points: SeriesPoints) -> None:
    """Inserts blocks of about equal size, which leaves room in each for points that come between."""
    num_points = len(points.steps)
    size = -(-num_points // max(1, -(-num_points // MAX_POINTS)))
    for begin in range(0, num_points, size or 1):
        steps, times, orders, values = points.part(begin, begin + size)
        is_metric = isinstance(values[0], (int, float))
        numbers = numbers_in(values, only_finite=True) if is_metric else []
        extremes = _comparable(min(numbers, default=None)), _comparable(max(numbers, default=None))
        figures = series_id, steps[-1], orders[-1], steps[0], len(steps), *extremes, _pack_orders(orders)
        columns = _encode(values[-1]), steps.tobytes(), _encode(values), times.tobytes()
        connection.execute(_INSERT, (*figures, *map(_with_checksum, columns)))


def _pack_orders(orders: array[int] | range) -> bytes:
    if isinstance(orders, range) or orders == array("I", range(orders[0], orders[0] + len(orders))):
        return _with_checksum(b"")
    return _with_checksum(orders.tobytes())


def _with_checksum(column: bytes) -> bytes:
    return column + struct.pack(">I", google_crc32c.value(column))


def unpack(packed: bytes) -> bytes:
    """Returns a column as it is kept: steps and times as `array` has them, values in MessagePack."""
    column = packed[:-_CHECKSUM_BYTES]
    if _with_checksum(column) != packed:
        raise DamagedError("a block of points has a wrong checksum")
    return column


# All of these raise `DamagedError` for a column that is not what was written.


def unpack_steps(packed: bytes) -> array[int]:
    return array("q", unpack(packed))


def unpack_times(packed: bytes) -> array[float]:
    return array("d", unpack(packed))


def unpack_values(packed: bytes) -> Any:
    """Returns the values of a block, numbers with their type and bits, or texts; or its last one."""
    return _decode(unpack(packed))


def unpack_orders(packed: bytes, last: int, num_points: int) -> array[int] | range:
    column = unpack(packed)
    return array("I", column) if column else range(last - num_points + 1, last + 1)


def _joined(orders: array[int] | range, others: array[int] | range) -> array[int] | range:
    if not orders:
        return others
    if isinstance(orders, range) and isinstance(others, range) and orders.stop == others.start:
        return range(orders.start, others.stop)
    orders = array("I", orders) if isinstance(orders, range) else orders
    orders.extend(others)
    return orders


def _comparable(value: Metric | None) -> Metric | None:
    """Returns an equal number that SQLite can store: it has no int 2**63."""
    return float(value) if value == MAX_INT else value
