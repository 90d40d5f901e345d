"""Questions about whole series: their lengths, curves and figures."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

from core_sdk.records import Metric
from core_sdk.tracking.index._schema import FIRST_STEPS, IS_METRIC, IS_VISIBLE, LAST_VISIBLE_STEPS, POINTS
from core_sdk.tracking.index._values import COMPARABLE, from_column
from core_sdk.tracking.rows import Bucket, LastValues, SeriesRow, Summary

_SERIES = "attempt JOIN series ON series.attempt_id = attempt.id"
_SERIES_OF_TRIALS = f"trial JOIN attempt USING (trial_id) JOIN series ON series.attempt_id = attempt.id AND {IS_METRIC}"
_OF_TRIAL = f"attempt.trial_id = ? AND {IS_METRIC}"


def read_series(connection: sqlite3.Connection, trial_id: int) -> list[SeriesRow]:
    query = f"""SELECT series.group_name, series.name, count(*), min(point.steps), max(point.steps) FROM {POINTS}
        WHERE {_OF_TRIAL} AND {IS_VISIBLE} GROUP BY series.group_name, series.name ORDER BY min(series.id)"""
    return [SeriesRow(*row) for row in connection.execute(query, (trial_id,))]


def read_groups(connection: sqlite3.Connection, trial_id: int) -> list[str]:
    query = f"""SELECT series.group_name FROM {_SERIES} WHERE attempt.trial_id = ?
        GROUP BY series.group_name ORDER BY min(series.id)"""
    return [group for (group,) in connection.execute(query, (trial_id,))]


def read_buckets(
    connection: sqlite3.Connection, trial_id: int, group: str, name: str, num_buckets: int
) -> list[Bucket]:
    """At most `num_buckets`, equally wide in steps; those without points are left out."""
    is_asked = f"{_OF_TRIAL} AND series.group_name = ? AND series.name = ?"
    asked = trial_id, group, name
    ends = f"SELECT min({FIRST_STEPS}), max({LAST_VISIBLE_STEPS}) FROM {_SERIES} WHERE {is_asked}"
    first, last = connection.execute(ends, asked).fetchone()
    if last is None:
        return []
    width = -(-(last - first + 1) // num_buckets)
    # One seek per stretch: grouped by an expression over steps, SQLite would sort all points first.
    query = f"""WITH RECURSIVE stretch(number) AS (VALUES (0) UNION ALL SELECT number + 1 FROM stretch WHERE number < ?)
        SELECT min(point.steps), max(point.steps), count(*),
            min({COMPARABLE}), max({COMPARABLE}), avg({COMPARABLE})
        FROM stretch CROSS JOIN attempt CROSS JOIN series ON series.attempt_id = attempt.id
        CROSS JOIN point ON point.series_id = series.id
            AND point.steps BETWEEN ? + number * ? AND ? + number * ? AND {IS_VISIBLE}
        WHERE {is_asked} GROUP BY number ORDER BY number"""
    values = (last - first) // width, first, width, first + width - 1, width, *asked
    return [Bucket(*row) for row in connection.execute(query, values)]


def read_resume_points(connection: sqlite3.Connection, trial_id: int) -> list[int]:
    query = """SELECT DISTINCT resumed_steps FROM attempt
        WHERE trial_id = ? AND rank = 0 AND attempt > 1 AND resumed_steps > 0 ORDER BY resumed_steps"""
    return [steps for (steps,) in connection.execute(query, (trial_id,))]


def read_summary(connection: sqlite3.Connection, trial_id: int) -> Summary:
    query = f"""SELECT series.group_name, series.name, count(*), min({COMPARABLE}), max({COMPARABLE}), avg({COMPARABLE})
        FROM {POINTS} WHERE {_OF_TRIAL} AND {IS_VISIBLE}
        GROUP BY series.group_name, series.name ORDER BY min(series.id)"""
    summary: Summary = defaultdict(dict)
    last = read_last_values(connection, trial_id)[trial_id]
    for group, name, count, minimum, maximum, mean in connection.execute(query, (trial_id,)):
        summary[group][name] = {
            "count": count,
            "last": last[group][name],
            "min": minimum,
            "max": maximum,
            "mean": mean,
        }
    return dict(summary)


def read_best_validations(
    connection: sqlite3.Connection, experiment_id: int, metric: str, *, smaller_is_better: bool
) -> dict[int, Metric]:
    best = "min" if smaller_is_better else "max"
    query = f"""SELECT trial_id, {best}({COMPARABLE}) FROM {_SERIES_OF_TRIALS} JOIN point ON point.series_id = series.id
        WHERE trial.experiment_id = ? AND series.group_name = 'validation' AND series.name = ? AND {IS_VISIBLE}
            AND point.value IS NOT NULL
        GROUP BY trial_id ORDER BY trial_id"""
    return dict(connection.execute(query, (experiment_id, metric)).fetchall())


def read_validation_metric_names(connection: sqlite3.Connection, experiment_id: int) -> set[str]:
    query = f"""SELECT series.name FROM {_SERIES_OF_TRIALS}
        WHERE trial.experiment_id = ? AND series.group_name = 'validation' AND {LAST_VISIBLE_STEPS} IS NOT NULL"""
    return {name for (name,) in connection.execute(query, (experiment_id,))}


def read_last_values(connection: sqlite3.Connection, trial_id: int | None = None) -> LastValues:
    """The value at the highest visible step of each series, of one trial or of all."""
    query = f"""SELECT attempt.trial_id, series.group_name, series.name, (
            SELECT point.value FROM point WHERE point.series_id = series.id AND {IS_VISIBLE}
            ORDER BY point.steps DESC, point.ticks DESC LIMIT 1
        ) FROM {_SERIES} WHERE ifnull(attempt.trial_id = ?, TRUE) AND {IS_METRIC} AND {LAST_VISIBLE_STEPS} IS NOT NULL
        ORDER BY attempt.attempt, series.id"""
    values: LastValues = defaultdict(lambda: defaultdict(dict))
    for trial, group, name, value in connection.execute(query, (trial_id,)):
        values[trial][group][name] = from_column(value)
    return values
