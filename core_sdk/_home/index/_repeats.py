"""Hides points that were reported again: they move to a series of their own, of which nothing is visible.

Of two reports of a step by one rank the later counts, whether they are of one attempt or of two.
"""

from __future__ import annotations

import sqlite3
from array import array

from core_sdk._home.index._blocks import SeriesPoints, chosen, in_order, insert_points, read_steps, take_points
from core_sdk._home.index._schema import LAST_STEPS
from core_sdk._home.index._values import names_beside

_INSERT_HIDDEN = """INSERT INTO series (attempt_id, is_profile, group_name, name, is_shown, visible_until, is_repeated)
    SELECT attempt_id, is_profile, group_name, name, is_shown, -1, TRUE FROM series WHERE id = ?
    ON CONFLICT DO NOTHING"""
_HIDDEN = """SELECT hidden.id FROM series AS hidden JOIN series USING (attempt_id, group_name, name)
    WHERE series.id = ? AND hidden.is_repeated"""


def hide_repeated(connection: sqlite3.Connection, earlier_id: int, later_id: int, first: int, last: int) -> None:
    """Hides the points of a series, from a first to a last step, at whose steps another one has points too."""
    if repeated := _common_steps(connection, earlier_id, read_steps(connection, later_id, first, last)):
        _hide(connection, earlier_id, take_points(connection, earlier_id, repeated))


def insert_later(
    connection: sqlite3.Connection, series_id: int, points: SeriesPoints, *, is_metric: bool, has_ties: bool
) -> None:
    """Inserts points that were reported after all that the series has, and hides what they repeat.

    `points` are in order; `has_ties` says whether some of them have the same step. What a report holds besides numbers
    is repeated as a whole, by what a later report of the same metric holds. A line of the journal that was copied is
    repeated by its copy, and so counts once.
    """
    (last,) = connection.execute(f"SELECT {LAST_STEPS} FROM series WHERE id = ?", (series_id,)).fetchone()
    goes_back = last is not None and points.steps[0] <= last
    if goes_back and (known := _common_steps(connection, series_id, points.steps)):
        points, has_ties = in_order([take_points(connection, series_id, known), points]), True
    if has_ties:
        points, repeated = _split(points, is_metric=is_metric)
        _hide(connection, series_id, repeated)
    insert_points(connection, series_id, points)


def _common_steps(connection: sqlite3.Connection, series_id: int, steps: array[int]) -> set[int]:
    """Returns the steps at which the series has points. `steps` rise."""
    return set(steps).intersection(read_steps(connection, series_id, steps[0], steps[-1])) if steps else set()


def _split(points: SeriesPoints, *, is_metric: bool) -> tuple[SeriesPoints, SeriesPoints]:
    """Returns the points that count, and those that are repeated."""
    counting, repeated = list[int](), list[int]()
    step, later = -1, set[str | None]()
    for place in reversed(range(len(points.steps))):
        if points.steps[place] != step:
            step, later = points.steps[place], set()
        names = {None} if is_metric else names_beside(points.values[place])
        (counting if later.isdisjoint(names) else repeated).append(place)
        later |= names
    return chosen(points, counting[::-1]), chosen(points, repeated[::-1])


def _hide(connection: sqlite3.Connection, series_id: int, points: SeriesPoints) -> None:
    if not points.steps:
        return
    connection.execute(_INSERT_HIDDEN, (series_id,))
    (hidden_id,) = connection.execute(_HIDDEN, (series_id,)).fetchone()
    insert_points(connection, hidden_id, points)
