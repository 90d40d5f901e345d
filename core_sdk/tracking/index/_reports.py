"""Questions about what trials reported."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from core_sdk.tracking.index._schema import IS_VISIBLE, POINTS, Where
from core_sdk.tracking.index._values import from_beside, from_column, from_ticks
from core_sdk.tracking.rows import ReportPage, ReportRow
from core_sdk.tracking.superseding import EVERYTHING

_ReportKey = tuple[int, int, int, int, float, str, bool, bool]
"""Steps, attempt, rank, ticks, the journal's start, group, is it a profile, is it superseded: in the order of reports.
"""

_Origin = tuple[int, int, float, str, bool]
"""Attempt, rank, the journal's start, group, is it a profile."""

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
    """The reports that are asked for."""

    trial_id: int
    group: str | None
    """None: all but the profiler's."""
    with_superseded: bool

    def where(self) -> Where:
        if self.group is None:
            return Where("attempt.trial_id = ? AND NOT series.is_profile", (self.trial_id,))
        return Where("attempt.trial_id = ? AND series.group_name = ?", (self.trial_id, self.group))


def read_page(connection: sqlite3.Connection, of: ReportsOf, after: int | None) -> ReportPage:
    """A page is read at once: a reader who paused within a query would keep every indexer waiting."""
    begin = -EVERYTHING if after is None else after
    all_series = _series_by_id(connection, of)
    last = _end_of_page(connection, of, begin, num_series=len(all_series))
    where = of.where()
    is_visible = "" if of.with_superseded else f"AND {IS_VISIBLE}"
    query = f"""SELECT point.* FROM {POINTS} WHERE {where.sql} AND point.steps > ? AND point.steps <= ? {is_visible}
        ORDER BY point.series_id"""
    rows = connection.execute(query, (*where.values, begin, last)).fetchall()
    return ReportPage(_report_rows(of.trial_id, rows, all_series), None if last == EVERYTHING else last)


def _series_by_id(connection: sqlite3.Connection, of: ReportsOf) -> dict[int, _Series]:
    where = of.where()
    query = f"""SELECT series.id, attempt.attempt, attempt.rank, attempt.started, series.group_name, series.name,
        series.is_profile, series.visible_until
        FROM attempt JOIN series ON series.attempt_id = attempt.id WHERE {where.sql}"""
    return {series_id: _Series(*rest) for series_id, *rest in connection.execute(query, where.values)}


def _end_of_page(connection: sqlite3.Connection, of: ReportsOf, after: int, num_series: int) -> int:
    """A step by which no series has more than its share of a page."""
    where = of.where()
    query = f"""SELECT min((
            SELECT point.steps FROM point WHERE point.series_id = series.id AND point.steps > ?
            ORDER BY point.steps LIMIT 1 OFFSET ?
        )) FROM attempt JOIN series ON series.attempt_id = attempt.id WHERE {where.sql}"""
    (last,) = connection.execute(query, (after, _PAGE_POINTS // max(num_series, 1), *where.values)).fetchone()
    return EVERYTHING if last is None else int(last)


def _report_rows(trial_id: int, rows: Iterable[Any], all_series: Mapping[int, _Series]) -> list[ReportRow]:
    """`rows` are of `point`, ordered by series."""
    by_origin: defaultdict[_Origin, dict[tuple[int, int, bool], dict[str, Any]]] = defaultdict(dict)
    for series_id, of_series in groupby(rows, key=itemgetter(0)):
        attempt_number, rank, started, group, name, is_profile, visible_until = all_series[series_id]
        reports = by_origin[attempt_number, rank, started, group, is_profile]
        for _, steps, ticks, value in of_series:
            key = (steps, ticks, steps > visible_until)
            if type(value) is not float and name:
                value = from_column(value)
            if (metrics := reports.get(key)) is None:
                reports[key] = {name: value}
            else:
                metrics[name] = value
    keys: list[tuple[_ReportKey, dict[str, Any]]] = [
        ((steps, attempt_number, rank, ticks, started, group, is_profile, is_superseded), metrics)
        for (attempt_number, rank, started, group, is_profile), reports in by_origin.items()
        for (steps, ticks, is_superseded), metrics in reports.items()
    ]
    return [_report_row(trial_id, key, metrics) for key, metrics in sorted(keys, key=itemgetter(0))]


def _report_row(trial_id: int, key: _ReportKey, metrics: dict[str, Any]) -> ReportRow:
    steps, attempt_number, rank, ticks, started, group, is_profile, is_superseded = key
    batches = None
    if (beside := metrics.pop("", None)) is not None:
        batches, others = from_beside(beside)
        metrics |= others
    return ReportRow(
        trial_id,
        attempt_number,
        group,
        None if is_profile else steps,
        from_ticks(ticks, started),
        metrics,
        batches,
        is_superseded,
        rank,
    )
