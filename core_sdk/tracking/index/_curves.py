"""Answers questions about whole series from the index: their lengths, curves and figures."""

from __future__ import annotations

import sqlite3
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

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
from core_sdk.tracking.rows import Bucket, Figures, FiguresByTrial, ProfileSeriesRow, SeriesRow, Summary

_SERIES = "attempt JOIN series ON series.attempt_id = attempt.id"
_SHOWN_METRICS_OF_TRIALS = f"""trial JOIN attempt USING (trial_id)
    JOIN series ON series.attempt_id = attempt.id AND series.is_shown AND {IS_METRIC}"""
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
    where = of.series()
    ends = f"SELECT min({FIRST_STEPS}), max({LAST_VISIBLE_STEPS if of.superseded_of is None else LAST_STEPS})"
    first, last = connection.execute(f"{ends} FROM {_SERIES} WHERE {where.sql}", where.values).fetchone()
    if last is None:
        return []
    if of.within is not None:
        first, last = max(first, of.within[0]), min(last, of.within[1])
    if last < first:
        return []
    width = -(-(last - first + 1) // num_buckets)
    _number_stretches(connection, num_buckets)
    values = first, width, first + width - 1, width, last, (last - first) // width, *where.values
    rows = connection.execute(_buckets_query("point.value", of), values).fetchall()
    if any(isinstance(row["maximum"], str) for row in rows):  # text is greater than any number
        rows = connection.execute(_buckets_query(COMPARABLE, of), values).fetchall()
    return [Bucket(*row) for row in rows]


def _buckets_query(value: str, of: BucketsOf) -> str:
    # One seek per stretch, in the order of a table's key: grouped by anything else, SQLite would sort all points first.
    return f"""SELECT min(point.steps), max(point.steps), count(*), min({value}), max({value}) AS maximum, avg({value})
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
