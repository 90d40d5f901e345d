"""Questions about what trials reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from core_sdk.tracking.index._schema import EVERYTHING, attempt, point, series
from core_sdk.tracking.index._spans import attempts_series, is_visible, points
from core_sdk.tracking.index._values import from_beside, from_column, from_ticks
from core_sdk.tracking.rows import ReportPage, ReportRow

_ReportKey = tuple[int, int, int, int, float, str, bool, bool]
"""Steps, attempt, rank, ticks, the journal's start, group, is it a profile, is it superseded: in the order of reports.
"""

_PAGE_POINTS = 50_000


class _Series(NamedTuple):
    attempt: int
    rank: int
    started: float
    group: str
    name: str
    is_profile: bool
    visible_until: int


@dataclass(frozen=True)
class ReportsOf:
    """Whose reports are asked for."""

    trial_id: int
    group: str | None
    """None: all but the profiler's."""
    with_superseded: bool

    def where(self) -> sa.ColumnElement[bool]:
        in_group = ~series.c.is_profile if self.group is None else series.c.group_name == self.group
        return sa.and_(attempt.c.trial_id == self.trial_id, in_group)


def read_page(connection: sa.Connection, of: ReportsOf, after: int | None) -> ReportPage:
    """A page is read at once: a reader who paused within a query would keep every indexer waiting."""
    begin = -EVERYTHING if after is None else after
    all_series = _series_by_id(connection, of)
    last = _end_of_page(connection, of, begin, num_series=len(all_series))
    query = (
        sa.select(point)
        .select_from(points)
        .where(of.where(), point.c.steps > begin, point.c.steps <= last)
        .order_by(point.c.series_id)
    )
    if not of.with_superseded:
        query = query.where(is_visible)
    rows = connection.execute(query).all()
    return ReportPage(_report_rows(of.trial_id, rows, all_series), None if last == EVERYTHING else last)


def _series_by_id(connection: sa.Connection, of: ReportsOf) -> dict[int, _Series]:
    columns = (
        series.c.id,
        attempt.c.attempt,
        attempt.c.rank,
        attempt.c.started,
        series.c.group_name,
        series.c.name,
        series.c.is_profile,
        series.c.visible_until,
    )
    query = sa.select(*columns).select_from(attempts_series).where(of.where())
    return {series_id: _Series(*rest) for series_id, *rest in connection.execute(query)}


def _end_of_page(connection: sa.Connection, of: ReportsOf, after: int, num_series: int) -> int:
    """A step by which no series has more than its share of a page."""
    nth_steps = (
        sa.select(point.c.steps)
        .where(point.c.series_id == series.c.id, point.c.steps > after)
        .correlate(series)
        .order_by(point.c.steps)
        .limit(1)
        .offset(_PAGE_POINTS // max(num_series, 1))
        .scalar_subquery()
    )
    query = sa.select(sa.func.min(nth_steps)).select_from(attempts_series).where(of.where())
    last = connection.scalar(query)
    return EVERYTHING if last is None else int(last)


def _report_rows(trial_id: int, rows: Iterable[Any], all_series: Mapping[int, _Series]) -> list[ReportRow]:
    """`rows` are of `point`, ordered by series."""
    reports: defaultdict[_ReportKey, dict[str, Any]] = defaultdict(dict)
    for series_id, of_series in groupby(rows, key=itemgetter(0)):
        attempt_number, rank, started, group, name, is_profile, visible_until = all_series[series_id]
        for _, steps, ticks, value in of_series:
            key = (steps, attempt_number, rank, ticks, started, group, is_profile, steps > visible_until)
            reports[key][name] = value if type(value) is float or not name else from_column(value)
    return [_report_row(trial_id, key, reports[key]) for key in sorted(reports)]


def _report_row(trial_id: int, key: _ReportKey, metrics: dict[str, Any]) -> ReportRow:
    steps, attempt_number, rank, ticks, started, group, is_profile, is_superseded = key
    beside = metrics.pop("", None)
    batches, others = (None, {}) if beside is None else from_beside(beside)
    return ReportRow(
        trial_id,
        attempt_number,
        group,
        None if is_profile else steps,
        from_ticks(ticks, started),
        metrics | others,
        batches,
        is_superseded,
        rank,
    )
