"""Answers questions about the reports of trials from the index."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from core_sdk.records import MEDIA_TAG, Metric, media_in
from core_sdk.tracking.index._schema import IS_VISIBLE, POINTS, Where, of_rank
from core_sdk.tracking.index._values import from_beside, from_column, from_ticks
from core_sdk.tracking.rows import MediaRow, Ranks, ReportPage, ReportRow
from core_sdk.tracking.superseding import EVERYTHING

_Origin = tuple[int, int, float, str, bool]
"""Attempt, rank, the journal's start, group, is it a profile."""

_PAGE_POINTS = 50_000
_SERIES = "attempt JOIN series ON series.attempt_id = attempt.id"
_NUMBERS = {float, int}
_decode_ints = msgspec.json.Decoder(list[int]).decode


class _Series(NamedTuple):
    """The points of a metric in a page, in the order of steps and ticks."""

    name: str
    visible_until: int
    steps: str
    """The steps as JSON text. Most metrics of a journal are reported together, and equal texts are fast to compare."""
    ticks: str
    values: list[Any]


class _Reports(NamedTuple):
    """The reports of one origin, in the order of steps and ticks, as one sequence for each of their parts."""

    steps: Sequence[int]
    ticks: Sequence[int]
    is_superseded: Sequence[bool]
    metrics: Sequence[dict[str, Any]]
    batches: Iterable[list[dict[str, Metric]] | None]


@dataclass(frozen=True)
class ReportsOf:
    """The reports that are asked for."""

    trial_id: int
    group: str | None
    """None asks for all groups but the profiler's."""
    rank: Ranks
    with_superseded: bool

    def where(self) -> Where:
        ranked = Where() if self.rank == "all" else of_rank(self.rank)
        if self.group is None:
            sql, values = "NOT series.is_profile", ranked.values
        else:
            sql, values = "series.group_name = ?", (self.group, *ranked.values)
        return Where(f"attempt.trial_id = ? AND {sql} AND {ranked.sql}", (self.trial_id, *values))


def read_page(connection: sqlite3.Connection, of: ReportsOf, after: int | None) -> ReportPage:
    """Reads a page as a whole: a reader that paused within a query would keep every indexer waiting."""
    begin = -EVERYTHING if after is None else after
    last = _end_of_page(connection, of, begin)
    by_origin = _read_series(connection, of, begin, last)
    return ReportPage(_report_rows(of.trial_id, by_origin), None if last == EVERYTHING else last)


def read_media(connection: sqlite3.Connection, of: ReportsOf) -> list[MediaRow]:
    """Reads what reports hold beside numbers, and only where it names a file."""
    where = of.where()
    visible = "TRUE" if of.with_superseded else IS_VISIBLE
    query = f"""SELECT attempt.attempt, attempt.rank, series.group_name, point.steps, point.ticks, attempt.started,
        NOT ({IS_VISIBLE}), point.value
        FROM {POINTS} WHERE {where.sql} AND series.name = '' AND {visible} AND instr(point.value, ?)
        ORDER BY point.steps, attempt.attempt, attempt.rank, point.ticks"""
    return [
        MediaRow(of.trial_id, attempt, rank, group, name, steps, from_ticks(ticks, started), file, bool(is_superseded))
        for attempt, rank, group, steps, ticks, started, is_superseded, beside in connection.execute(
            query, (*where.values, f'"{MEDIA_TAG}"')
        ).fetchall()
        for metric, value in from_beside(beside)[1].items()
        for name, file in media_in(value, metric)
    ]


def _end_of_page(connection: sqlite3.Connection, of: ReportsOf, after: int) -> int:
    """Returns the last step of the page, at which no series exceeds its share of the points of a page."""
    where = of.where()
    query = f"SELECT count(*) FROM {_SERIES} WHERE {where.sql}"
    (num_series,) = connection.execute(query, where.values).fetchone()
    query = f"""SELECT min((
            SELECT point.steps FROM point WHERE point.series_id = series.id AND point.steps > ?
            ORDER BY point.steps LIMIT 1 OFFSET ?
        )) FROM {_SERIES} WHERE {where.sql}"""
    (last,) = connection.execute(query, (after, _PAGE_POINTS // max(num_series, 1), *where.values)).fetchone()
    return EVERYTHING if last is None else int(last)


def _read_series(
    connection: sqlite3.Connection, of: ReportsOf, begin: int, last: int
) -> defaultdict[_Origin, list[_Series]]:
    where = of.where()
    end = "?" if of.with_superseded else "min(?, series.visible_until)"
    query = f"""SELECT attempt.attempt, attempt.rank, attempt.started, series.group_name, series.is_profile,
        series.name, series.visible_until, series.id, {end}
        FROM {_SERIES} WHERE {where.sql} AND EXISTS (
            SELECT 1 FROM point WHERE point.series_id = series.id AND point.steps > ? AND point.steps <= {end}
        ) ORDER BY series.id"""
    by_origin: defaultdict[_Origin, list[_Series]] = defaultdict(list)
    for *origin, name, visible_until, series_id, end_of_series in connection.execute(
        query, (last, *where.values, begin, last)
    ).fetchall():
        points = "FROM point WHERE series_id = ? AND steps > ? AND steps <= ? ORDER BY steps, ticks"
        of_points = series_id, begin, end_of_series
        query = f"SELECT json_group_array(steps), json_group_array(ticks) FROM (SELECT steps, ticks {points})"
        steps, ticks = connection.execute(query, of_points).fetchone()
        values = list(chain.from_iterable(connection.execute(f"SELECT value {points}", of_points)))
        if name and not _NUMBERS.issuperset(map(type, values)):
            values = list(map(from_column, values))
        attempt_number, rank, started, group, is_profile = origin
        series = _Series(name, visible_until, steps, ticks, values)
        by_origin[attempt_number, rank, started, group, bool(is_profile)].append(series)
    return by_origin


def _report_rows(trial_id: int, by_origin: Mapping[_Origin, Sequence[_Series]]) -> list[ReportRow]:
    parts: list[Iterable[tuple[Any, ReportRow]]] = []
    for (attempt_number, rank, started, group, is_profile), all_series in by_origin.items():
        found = _reports_together(all_series) or _reports_apart(all_series)
        steps, ticks, is_superseded, metrics, batches = found
        rows = map(
            ReportRow,
            repeat(trial_id),
            repeat(attempt_number),
            repeat(group),
            repeat(None) if is_profile else steps,
            [from_ticks(tick, started) for tick in ticks],
            metrics,
            batches,
            is_superseded,
            repeat(rank),
        )
        if len(by_origin) == 1:
            return list(rows)
        key = zip(
            steps, repeat(attempt_number), repeat(rank), ticks, repeat((started, group, is_profile)), is_superseded
        )
        parts.append(zip(key, rows, strict=False))
    return [row for _, row in sorted(chain.from_iterable(parts), key=itemgetter(0))]


def _reports_together(all_series: Sequence[_Series]) -> _Reports | None:
    """Returns the reports if each of them has all metrics and nothing beside them, otherwise None."""
    first = all_series[0]
    if any(one.name == "" or one[1:4] != first[1:4] for one in all_series):
        return None
    steps, ticks = _decode_ints(first.steps), _decode_ints(first.ticks)
    names = [one.name for one in all_series]
    metrics = [
        dict(zip(names, values, strict=True)) for values in zip(*(one.values for one in all_series), strict=True)
    ]
    return _Reports(steps, ticks, [one > first.visible_until for one in steps], metrics, repeat(None))


def _reports_apart(all_series: Sequence[_Series]) -> _Reports:
    reports: defaultdict[tuple[int, int, bool], dict[str, Any]] = defaultdict(dict)
    for one in all_series:
        for steps, ticks, value in zip(_decode_ints(one.steps), _decode_ints(one.ticks), one.values, strict=True):
            reports[steps, ticks, steps > one.visible_until][one.name] = value
    keys = sorted(reports)
    metrics = [reports[key] for key in keys]
    batches: list[list[dict[str, Metric]] | None] = [None] * len(keys)
    for number, of_report in enumerate(metrics):
        if (beside := of_report.pop("", None)) is not None:
            batches[number], others = from_beside(beside)
            of_report |= others
    all_steps, all_ticks, is_superseded = zip(*keys, strict=True)
    return _Reports(all_steps, all_ticks, is_superseded, metrics, batches)
