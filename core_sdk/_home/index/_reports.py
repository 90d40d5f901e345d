"""Answers questions about the reports of trials from the index."""

from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from core_sdk._ground.records import MEDIA_TAG, Source, from_json, in_order, media_in
from core_sdk._home.index._blocks import (
    MAX_POINTS,
    read_points,
    unpack_orders,
    unpack_steps,
    unpack_times,
    unpack_values,
)
from core_sdk._home.index._schema import BLOCKS, IS_VISIBLE, Where, of_rank
from core_sdk._home.index._values import from_beside
from core_sdk._home.rows import MediaRow, Ranks, ReportPage, ReportRow
from core_sdk._home.superseding import EVERYTHING

_Origin = tuple[int, Source, str, bool]
"""Attempt, rank, group, is it a profile."""

_PAGE_POINTS = 50_000
_SERIES = "attempt JOIN series ON series.attempt_id = attempt.id"


class _PageSeries(NamedTuple):
    """The points of a metric in a page, by step and order."""

    name: str
    visible_until: int
    steps: array[int]
    times: array[float]
    orders: array[int] | range
    values: list[Any]


class _Reports(NamedTuple):
    """The reports of one origin, by step and order, as one sequence for each of their parts."""

    steps: Sequence[int]
    times: Sequence[float]
    orders: Sequence[int]
    is_superseded: Sequence[bool]
    numbers: Sequence[dict[str, Any]]
    beside: Sequence[str | None] = ()
    """The parts of each report besides its numbers, as `to_beside` has kept them; empty if no report has any."""


class ReportsOf(msgspec.Struct, frozen=True):
    """The reports that are asked for."""

    trial_id: int
    group: str | None
    """The group of the reports; None asks for all groups but the profiler's."""
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
    """Reads what reports hold besides numbers, and only where it names a file."""
    where = of.where()
    visible = "TRUE" if of.with_superseded else IS_VISIBLE
    query = f"""SELECT attempt.attempt, attempt.rank, series.group_name, NOT ({IS_VISIBLE}), block.count,
        block.last_order, block.steps, block.times, block.orders, block.numbers FROM {BLOCKS}
        WHERE {where.sql} AND series.name = '' AND {visible} AND instr(block.numbers, ?)"""
    tag = f'"{MEDIA_TAG}"'
    found = [
        (
            (step, attempt, in_order(rank), order),
            MediaRow(of.trial_id, attempt, rank, group, name, step, time, file, bool(hidden)),
        )
        for attempt, rank, group, hidden, count, last_order, steps, times, orders, texts in connection.execute(
            query, (*where.values, tag.encode())
        ).fetchall()
        for step, time, order, beside in zip(
            unpack_steps(steps),
            unpack_times(times),
            unpack_orders(orders, last_order, count),
            unpack_values(texts),
            strict=True,
        )
        if beside is not None and tag in beside
        for metric, value in from_json(from_beside(beside, time, group, step, {}).json_metrics or {}).items()
        for name, file in media_in(value, metric)
    ]
    return [row for _, row in sorted(found, key=itemgetter(0))]


def _end_of_page(connection: sqlite3.Connection, of: ReportsOf, after: int) -> int:
    """Returns the last step of the page, at which no series exceeds its share of the points by more than a block."""
    where = of.where()
    query = f"SELECT count(*) FROM {_SERIES} WHERE {where.sql}"
    (num_series,) = connection.execute(query, where.values).fetchone()
    query = f"""SELECT min((
            SELECT block.last_steps FROM block WHERE block.series_id = series.id AND block.last_steps > ?
            ORDER BY block.last_steps LIMIT 1 OFFSET ?
        )) FROM {_SERIES} WHERE {where.sql}"""
    num_blocks = _PAGE_POINTS // max(num_series, 1) // MAX_POINTS
    (last,) = connection.execute(query, (after, num_blocks, *where.values)).fetchone()
    return EVERYTHING if last is None else int(last)


def _read_series(
    connection: sqlite3.Connection, of: ReportsOf, begin: int, last: int
) -> defaultdict[_Origin, list[_PageSeries]]:
    where = of.where()
    query = f"""SELECT attempt.attempt, attempt.rank, series.group_name, series.is_profile, series.name,
        series.visible_until, series.id FROM {_SERIES} WHERE {where.sql} ORDER BY series.id"""
    by_origin: defaultdict[_Origin, list[_PageSeries]] = defaultdict(list)
    for attempt_number, rank, group, is_profile, name, visible_until, series_id in connection.execute(
        query, where.values
    ).fetchall():
        end = last if of.with_superseded else min(last, visible_until)
        points = read_points(connection, series_id, begin + 1, end)
        if points.steps:
            by_origin[attempt_number, rank, group, bool(is_profile)].append(_PageSeries(name, visible_until, *points))
    return by_origin


def _report_rows(trial_id: int, by_origin: Mapping[_Origin, Sequence[_PageSeries]]) -> list[ReportRow]:
    parts: list[Iterable[tuple[Any, ReportRow]]] = []
    for (attempt_number, rank, group, is_profile), all_series in by_origin.items():
        found = _reports_together(all_series) or _reports_apart(all_series)
        steps, times, orders, is_superseded, numbers, beside = found
        rows: Iterable[ReportRow] = map(
            ReportRow,
            repeat(trial_id),
            repeat(attempt_number),
            repeat(group),
            repeat(None) if is_profile else steps,
            times,
            numbers,
            repeat(None),
            is_superseded,
            repeat(rank),
        )
        if beside:
            rows = map(_with_beside, rows, beside)
        if len(by_origin) == 1:
            return list(rows)
        origin = repeat((attempt_number, in_order(rank)))
        key = zip(steps, origin, orders, repeat((group, is_profile)), is_superseded)
        parts.append(zip(key, rows, strict=False))
    return [row for _, row in sorted(chain.from_iterable(parts), key=itemgetter(0))]


def _reports_together(all_series: Sequence[_PageSeries]) -> _Reports | None:
    """Returns the reports if each of them has all metrics and nothing else, otherwise None."""
    first = all_series[0]
    if any(one.name == "" or one[1:5] != first[1:5] for one in all_series):
        return None
    names = [one.name for one in all_series]
    columns = (one.values for one in all_series)
    metrics = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    is_superseded = [steps > first.visible_until for steps in first.steps]
    return _Reports(first.steps, first.times, first.orders, is_superseded, metrics)


def _reports_apart(all_series: Sequence[_PageSeries]) -> _Reports:
    reports: defaultdict[tuple[int, int, float, bool], dict[str, Any]] = defaultdict(dict)
    for one in all_series:
        for steps, time, order, value in zip(one.steps, one.times, one.orders, one.values, strict=True):
            reports[steps, order, time, steps > one.visible_until][one.name] = value
    keys = sorted(reports)
    numbers = [reports[key] for key in keys]
    beside = [of_report.pop("", None) for of_report in numbers]
    all_steps, orders, all_times, is_superseded = zip(*keys, strict=True)
    return _Reports(all_steps, all_times, orders, is_superseded, numbers, beside)


def _with_beside(row: ReportRow, beside: str | None) -> ReportRow:
    if beside is None or row.steps_completed is None:
        return row
    report = from_beside(beside, row.time, row.group, row.steps_completed, row.metrics)
    whole = ReportRow.recorded(row.trial_id, row.attempt, row.rank, report)
    return msgspec.structs.replace(whole, is_superseded=row.is_superseded)
