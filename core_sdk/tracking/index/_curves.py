"""Questions about whole series: how long they are, and how they run."""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa

from core_sdk.records import Metric
from core_sdk.tracking.index._schema import attempt, point, series, trial
from core_sdk.tracking.index._spans import attempts_series, first_steps, is_visible, last_visible_steps, points
from core_sdk.tracking.index._values import comparable, from_column
from core_sdk.tracking.rows import Bucket, SeriesRow, Summary

_is_metric = sa.and_(~series.c.is_profile, series.c.name != "")
_value = comparable(point.c.value)

# One seek per stretch: grouped by an expression over steps, SQLite would sort all points first.
_stretch = sa.Table(
    "stretch",
    sa.MetaData(),
    sa.Column("first", sa.Integer, primary_key=True),
    sa.Column("last", sa.Integer, nullable=False),
    prefixes=["TEMPORARY"],
)


def read_series(connection: sa.Connection, trial_id: int) -> list[SeriesRow]:
    query = (
        sa.select(
            series.c.group_name,
            series.c.name,
            sa.func.count(),
            sa.func.min(point.c.steps),
            sa.func.max(point.c.steps),
        )
        .select_from(points)
        .where(attempt.c.trial_id == trial_id, _is_metric, is_visible)
        .group_by(series.c.group_name, series.c.name)
        .order_by(sa.func.min(series.c.id))
    )
    return [SeriesRow(*row) for row in connection.execute(query)]


def read_groups(connection: sa.Connection, trial_id: int) -> list[str]:
    query = (
        sa.select(series.c.group_name)
        .select_from(attempts_series)
        .where(attempt.c.trial_id == trial_id)
        .group_by(series.c.group_name)
        .order_by(sa.func.min(series.c.id))
    )
    return list(connection.execute(query).scalars())


def read_buckets(connection: sa.Connection, trial_id: int, group: str, name: str, num_buckets: int) -> list[Bucket]:
    """At most `num_buckets`, equally wide in steps; those without points are left out."""
    is_asked = sa.and_(attempt.c.trial_id == trial_id, _is_metric, series.c.group_name == group, series.c.name == name)
    ends = sa.select(sa.func.min(first_steps), sa.func.max(last_visible_steps))
    first, last = connection.execute(ends.select_from(attempts_series).where(is_asked)).one()
    if last is None:
        return []
    width = -(-(last - first + 1) // num_buckets)
    stretches = [{"first": start, "last": start + width - 1} for start in range(first, last + 1, width)]
    connection.execute(sa.schema.CreateTable(_stretch))  # until the end of the question, which commits nothing
    connection.execute(sa.insert(_stretch), stretches)
    query = (
        sa.select(
            sa.func.min(point.c.steps),
            sa.func.max(point.c.steps),
            sa.func.count(),
            sa.func.count() - sa.func.count(point.c.value),
            sa.func.min(_value),
            sa.func.max(_value),
            sa.func.avg(_value),
        )
        .select_from(points.join(_stretch, point.c.steps.between(_stretch.c.first, _stretch.c.last)))
        .where(is_asked, is_visible)
        .group_by(_stretch.c.first)
        .order_by(_stretch.c.first)
    )
    return [Bucket(*row) for row in connection.execute(query)]


def read_summary(connection: sa.Connection, trial_id: int) -> Summary:
    summary: Summary = defaultdict(dict)
    query = (
        sa.select(
            series.c.group_name,
            series.c.name,
            sa.func.count(),
            sa.func.min(_value),
            sa.func.max(_value),
            sa.func.avg(_value),
        )
        .select_from(points)
        .where(attempt.c.trial_id == trial_id, _is_metric, is_visible)
        .group_by(series.c.group_name, series.c.name)
        .order_by(sa.func.min(series.c.id))
    )
    last = _last_values(connection, trial_id)
    for group, name, count, minimum, maximum, mean in connection.execute(query):
        summary[group][name] = {
            "count": count,
            "last": last[group, name],
            "min": minimum,
            "max": maximum,
            "mean": mean,
        }
    return dict(summary)


def read_best_validation(
    connection: sa.Connection, experiment_id: int, metric: str, *, smaller_is_better: bool
) -> Metric | None:
    best = sa.func.min(_value) if smaller_is_better else sa.func.max(_value)
    query = (
        sa.select(best)
        .select_from(points.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(_is_validation(experiment_id), series.c.name == metric, is_visible)
    )
    return connection.scalar(query)


def read_validation_metric_names(connection: sa.Connection, experiment_id: int) -> set[str]:
    query = (
        sa.select(series.c.name)
        .select_from(attempts_series.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(_is_validation(experiment_id), last_visible_steps.is_not(None))
    )
    return set(connection.scalars(query))


def _is_validation(experiment_id: int) -> sa.ColumnElement[bool]:
    return sa.and_(trial.c.experiment_id == experiment_id, _is_metric, series.c.group_name == "validation")


def _last_values(connection: sa.Connection, trial_id: int) -> dict[tuple[str, str], Metric]:
    """The value at the highest visible step of each series."""
    last_value = (
        sa.select(point.c.value)
        .where(point.c.series_id == series.c.id, is_visible)
        .correlate(series)
        .order_by(point.c.steps.desc(), point.c.ticks.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = (
        sa.select(series.c.group_name, series.c.name, last_value)
        .select_from(attempts_series)
        .where(attempt.c.trial_id == trial_id, _is_metric, last_visible_steps.is_not(None))
        .order_by(attempt.c.attempt)
    )
    return {(group, name): from_column(value) for group, name, value in connection.execute(query)}
