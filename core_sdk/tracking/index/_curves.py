"""Answers questions about whole series from the index: their lengths, curves and figures."""

from __future__ import annotations

import math
import sqlite3
import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from core_sdk.records import Metric
from core_sdk.tracking.index._schema import (
    FIRST_STEPS,
    IS_METRIC,
    IS_VISIBLE,
    LAST_STEPS,
    LAST_VISIBLE_STEPS,
    POINTS,
    VISIBLE_MAXIMUM,
    VISIBLE_MINIMUM,
    Where,
    among,
    of_rank,
)
from core_sdk.tracking.index._values import COMPARABLE, TICKS_PER_S, from_column
from core_sdk.tracking.rows import Bins, Bucket, Figures, FiguresByTrial, ProfileSeriesRow, SeriesRow, Summary

_SERIES = "attempt JOIN series ON series.attempt_id = attempt.id"
_SHOWN_METRICS_OF_TRIALS = f"""trial JOIN attempt USING (trial_id)
    JOIN series ON series.attempt_id = attempt.id AND series.is_shown AND {IS_METRIC}"""
_FINITE = f"CASE WHEN abs({COMPARABLE}) < 9e999 THEN {COMPARABLE} END"
_OF_TRIAL = f"attempt.trial_id = ? AND {IS_METRIC}"


def read_series(connection: sqlite3.Connection, trial_id: int, rank: int | None) -> list[SeriesRow]:
    ranked = of_rank(rank)
    query = f"""SELECT series.group_name, series.name, count(*), min(point.steps), max(point.steps) FROM {POINTS}
        WHERE {_OF_TRIAL} AND {ranked.sql} AND {IS_VISIBLE}
        GROUP BY series.group_name, series.name ORDER BY min(series.id)"""
    return [SeriesRow(*row) for row in connection.execute(query, (trial_id, *ranked.values))]


def read_reporting_ranks(connection: sqlite3.Connection, trial_id: int) -> list[int]:
    query = f"SELECT DISTINCT rank FROM {_SERIES} WHERE attempt.trial_id = ? AND NOT is_profile ORDER BY rank"
    return [rank for (rank,) in connection.execute(query, (trial_id,))]


def read_groups(connection: sqlite3.Connection, trial_id: int) -> list[str]:
    query = f"""SELECT series.group_name FROM {_SERIES} WHERE attempt.trial_id = ?
        GROUP BY series.group_name ORDER BY min(series.id)"""
    return [group for (group,) in connection.execute(query, (trial_id,))]


def read_profile_series(connection: sqlite3.Connection, trial_id: int) -> list[ProfileSeriesRow]:
    query = f"""SELECT rank, series.group_name, series.name FROM {_SERIES} WHERE attempt.trial_id = ? AND is_profile
        GROUP BY rank, series.group_name, series.name ORDER BY rank, min(series.id)"""
    return [ProfileSeriesRow(*row) for row in connection.execute(query, (trial_id,))]


@dataclass(frozen=True)
class BucketsOf:
    """The points that are asked for."""

    trial_id: int
    group: str
    name: str
    within: tuple[int, int] | None = None
    """The first and the last step; for the profiler's figures, milliseconds since the Unix epoch."""
    superseded_of: int | None = None
    """The attempt whose superseded points are asked for; None asks for the visible points of all attempts."""
    rank: int | None = None
    """The rank that reported the points; None asks for the series that are shown by default."""
    is_profile: bool = False

    def series(self) -> Where:
        """Returns a condition on the tables `attempt` and `series`."""
        ranked = of_rank(self.rank)
        sql = f"""attempt.trial_id = ? AND series.is_profile = ? AND series.group_name = ? AND series.name = ?
            AND {ranked.sql}"""
        values: tuple[object, ...] = (self.trial_id, self.is_profile, self.group, self.name, *ranked.values)
        if self.superseded_of is not None:
            sql, values = f"{sql} AND attempt.attempt = ?", (*values, self.superseded_of)
        return Where(sql, values)

    def points(self, first: str, last: str) -> str:
        """Returns a condition on the tables `series` and `point`, for the steps from `first` to `last`.

        It is a single range, so that SQLite can seek to it.
        """
        if self.superseded_of is None:
            return f"point.steps BETWEEN {first} AND min({last}, series.visible_until)"
        return f"point.steps BETWEEN max({first}, series.visible_until + 1) AND {last}"


def read_buckets(connection: sqlite3.Connection, of: BucketsOf, num_buckets: int) -> list[Bucket]:
    """Returns at most `num_buckets` buckets, equally wide in steps, in order. Buckets without points are left out."""
    stretch = _stretch(connection, of)
    if stretch is None:
        return []
    first, last = stretch
    width = -(-(last - first + 1) // num_buckets)
    _number_stretches(connection, num_buckets)
    values = first, width, first + width - 1, width, last, (last - first) // width, *of.series().values
    rows = connection.execute(_buckets_query("point.value", of), values).fetchall()
    if any(isinstance(row["maximum"], str) for row in rows):  # text is greater than any number
        rows = connection.execute(_buckets_query(COMPARABLE, of), values).fetchall()
    return [Bucket(*row) for row in rows]


def _stretch(connection: sqlite3.Connection, of: BucketsOf) -> tuple[int, int] | None:
    """Returns the first and the last step of the points that are asked for, or None if there are none."""
    where = of.series()
    ends = f"SELECT min({FIRST_STEPS}), max({LAST_VISIBLE_STEPS if of.superseded_of is None else LAST_STEPS})"
    first, last = connection.execute(f"{ends} FROM {_SERIES} WHERE {where.sql}", where.values).fetchone()
    if last is None:
        return None
    if of.within is not None:
        first, last = max(first, of.within[0]), min(last, of.within[1])
    return None if last < first else (first, last)


def _buckets_query(value: str, of: BucketsOf) -> str:
    columns = f"min(point.steps), max(point.steps), count(*), min({value}), max({value}) AS maximum, avg({value})"
    return _stretches_query(columns, of)


def _bins_query(value: str, of: BucketsOf) -> str:
    columns = f"""number, min(point.steps), max(point.steps), count(*), count({value}), min({value}) AS minimum,
        max({value}) AS maximum, avg({value})"""
    return _stretches_query(columns, of)


def _stretches_query(columns: str, of: BucketsOf) -> str:
    # One seek per stretch, in the order of a table's key: grouped by anything else, SQLite would sort all points first.
    return f"""SELECT {columns}
        FROM stretch CROSS JOIN attempt CROSS JOIN series ON series.attempt_id = attempt.id
        CROSS JOIN point ON point.series_id = series.id
            AND {of.points("? + number * ?", "min(? + number * ?, ?)")}
        WHERE number <= ? AND {of.series().sql} GROUP BY number ORDER BY number"""


def _number_stretches(connection: sqlite3.Connection, num_stretches: int) -> None:
    """Makes a temporary table with the numbers from 0, which is gone at the end of the transaction."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS stretch (number INTEGER PRIMARY KEY)")
    numbers = "VALUES (0) UNION ALL SELECT number + 1 FROM numbers WHERE number < ?"
    query = f"INSERT OR IGNORE INTO stretch WITH RECURSIVE numbers(number) AS ({numbers}) SELECT number FROM numbers"
    connection.execute(query, (num_stretches - 1,))


def read_step_range(
    connection: sqlite3.Connection, trial_ids: Collection[int], group: str, name: str, rank: int | None
) -> tuple[int, int] | None:
    of_trials, ranked = among("attempt.trial_id", trial_ids), of_rank(rank)
    query = f"""SELECT min({FIRST_STEPS}), max({LAST_VISIBLE_STEPS}) FROM {_SERIES}
        WHERE {of_trials.sql} AND {IS_METRIC} AND group_name = ? AND name = ? AND {ranked.sql}
            AND {LAST_VISIBLE_STEPS} IS NOT NULL"""
    first, last = connection.execute(query, (*of_trials.values, group, name, *ranked.values)).fetchone()
    return None if last is None else (first, last)


def read_bins(connection: sqlite3.Connection, of: BucketsOf, width: int) -> Bins:
    stretch = _stretch(connection, of)
    if stretch is None:
        return as_bins(width, [])
    number, last_number = stretch[0] // width, stretch[1] // width
    _number_stretches(connection, last_number - number + 1)
    first = number * width
    values = first, width, first + width - 1, width, stretch[1], last_number - number, *of.series().values
    rows = connection.execute(_bins_query("point.value", of), values).fetchall()
    # Text is greater than any number, and SQLite has a mean of infinities.
    if any(isinstance(row["maximum"], str) or math.inf in (row["maximum"], -row["minimum"]) for row in rows if row[4]):
        rows = connection.execute(_bins_query(_FINITE, of), values).fetchall()
    return as_bins(width, [(number + offset, *row) for offset, *row in rows])


def as_bins(width: int, rows: Iterable[Sequence[Any]]) -> Bins:
    """Returns the rows, each a bin's values in the order of `Bins`, as compact columns."""
    columns = list(zip(*rows, strict=True)) or [()] * 8
    integers = [array("q", column) for column in columns[:5]]
    floats = [array("d", (math.nan if value is None else value for value in column)) for column in columns[5:]]
    return Bins(width, *integers, *floats)


def read_bucket_times(connection: sqlite3.Connection, of: BucketsOf, buckets: Sequence[Bucket]) -> list[float]:
    """Returns the time at which the newest point of each bucket was reported, in seconds since the Unix epoch."""
    where = of.series()
    query = f"""SELECT max(attempt.started + point.ticks * {1 / TICKS_PER_S!r})
        FROM json_each(?) AS wanted CROSS JOIN attempt CROSS JOIN series ON series.attempt_id = attempt.id
        CROSS JOIN point ON point.series_id = series.id AND {of.points("wanted.value", "wanted.value")}
        WHERE {where.sql} GROUP BY wanted.key ORDER BY wanted.key"""
    steps = msgspec.json.encode([bucket.last_steps for bucket in buckets]).decode()
    return [time for (time,) in connection.execute(query, (steps, *where.values))]


def read_resume_points(connection: sqlite3.Connection, trial_id: int) -> list[int]:
    query = """SELECT DISTINCT resumed_steps FROM attempt
        WHERE trial_id = ? AND rank = 0 AND attempt > 1 AND resumed_steps > 0 ORDER BY resumed_steps"""
    return [steps for (steps,) in connection.execute(query, (trial_id,))]


def read_summary(connection: sqlite3.Connection, trial_id: int) -> Summary:
    query = f"""SELECT series.group_name, series.name, count(*), min({COMPARABLE}), max({COMPARABLE}), avg({COMPARABLE})
        FROM {POINTS} WHERE {_OF_TRIAL} AND series.is_shown AND {IS_VISIBLE}
        GROUP BY series.group_name, series.name ORDER BY min(series.id)"""
    summary: Summary = defaultdict(dict)
    figures = read_figures(connection, [trial_id])[trial_id]
    for group, name, count, minimum, maximum, mean in connection.execute(query, (trial_id,)):
        summary[group][name] = {
            "count": count,
            "last": figures[group][name].last,
            "min": minimum,
            "max": maximum,
            "mean": mean,
        }
    return dict(summary)


def read_best_validations(
    connection: sqlite3.Connection, experiment_id: int, metric: str, *, smaller_is_better: bool
) -> dict[int, Metric]:
    best = f"min({VISIBLE_MINIMUM})" if smaller_is_better else f"max({VISIBLE_MAXIMUM})"
    query = f"""SELECT trial_id, {best} AS best FROM {_SHOWN_METRICS_OF_TRIALS}
        WHERE trial.experiment_id = ? AND series.group_name = 'validation' AND series.name = ?
        GROUP BY trial_id HAVING best IS NOT NULL ORDER BY trial_id"""
    return dict(connection.execute(query, (experiment_id, metric)).fetchall())


def read_validation_metric_names(connection: sqlite3.Connection, experiment_id: int) -> set[str]:
    query = f"""SELECT series.name FROM {_SHOWN_METRICS_OF_TRIALS}
        WHERE trial.experiment_id = ? AND series.group_name = 'validation' AND {LAST_VISIBLE_STEPS} IS NOT NULL"""
    return {name for (name,) in connection.execute(query, (experiment_id,))}


def read_figures(
    connection: sqlite3.Connection, trial_ids: Collection[int] | None = None, rank: int | None = None
) -> FiguresByTrial:
    """Returns the figures of every series with a visible point, of these trials or of all trials."""
    where, ranked = among("attempt.trial_id", trial_ids), of_rank(rank)
    query = f"""SELECT attempt.trial_id, series.group_name, series.name, (
            SELECT point.value FROM point WHERE point.series_id = series.id AND {IS_VISIBLE}
            ORDER BY point.steps DESC, point.ticks DESC LIMIT 1
        ), {VISIBLE_MINIMUM}, {VISIBLE_MAXIMUM}
        FROM {_SERIES} WHERE {where.sql} AND {ranked.sql} AND {IS_METRIC} AND {LAST_VISIBLE_STEPS} IS NOT NULL
        ORDER BY attempt.attempt, series.id"""
    figures: FiguresByTrial = defaultdict(lambda: defaultdict(dict))
    values = (*where.values, *ranked.values)
    for trial_id, group, name, value, minimum, maximum in connection.execute(query, values):
        of_group = figures[trial_id][sys.intern(group)]
        found = Figures(from_column(value), minimum, maximum)
        of_group[sys.intern(name)] = _joined(of_group[name], found) if name in of_group else found
    return figures


def _joined(earlier: Figures, later: Figures) -> Figures:
    """Joins the figures of a metric in two attempts."""
    minima = [value for value in (earlier.minimum, later.minimum) if value is not None]
    maxima = [value for value in (earlier.maximum, later.maximum) if value is not None]
    return Figures(later.last, min(minima, default=None), max(maxima, default=None))
