"""Answers questions about whole series from the index: their lengths, curves and figures."""

from __future__ import annotations

import math
import sqlite3
import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from core_sdk._ground.records import Metric, Source, in_order
from core_sdk._home.index._blocks import numbers_in, unpack, unpack_steps, unpack_times, unpack_values
from core_sdk._home.index._schema import (
    BLOCKS,
    FIRST_STEPS,
    IS_METRIC,
    IS_VISIBLE,
    LAST_STEPS,
    LAST_VISIBLE_STEPS,
    VISIBLE_MAXIMUM,
    VISIBLE_MINIMUM,
    Where,
    among,
    of_rank,
)
from core_sdk._home.rows import (
    Bins,
    Figures,
    FiguresByTrial,
    Outline,
    ProfileSeriesRow,
    SeriesBucket,
    SeriesRow,
    Summary,
)

_SERIES = "attempt JOIN series ON series.attempt_id = attempt.id"
_SHOWN_METRICS_OF_TRIALS = f"""trial JOIN attempt USING (trial_id)
    JOIN series ON series.attempt_id = attempt.id AND series.is_shown AND {IS_METRIC}"""
_OF_TRIAL = f"attempt.trial_id = ? AND {IS_METRIC}"
_SHOWN = f"series.is_shown AND {IS_METRIC}"


class SeriesOrigin(NamedTuple):
    """The origin of the points of one series."""

    series_id: int
    trial_id: int
    attempt: int
    rank: Source
    group: str
    name: str


class PointColumns(NamedTuple):
    """Some consecutive points of a series, in columns of bytes."""

    series_id: int
    steps: bytes
    """Integers of 64 bits."""
    times: bytes
    """Floats of 64 bits."""
    values: bytes
    """A list of numbers in MessagePack."""


def read_series(connection: sqlite3.Connection, trial_id: int, rank: Source | None) -> list[SeriesRow]:
    ranked = of_rank(rank)
    query = f"""SELECT series.group_name, series.name, sum(block.count), min(block.first_steps), max(block.last_steps)
        FROM {BLOCKS} WHERE {_OF_TRIAL} AND {ranked.sql} AND {IS_VISIBLE}
        GROUP BY series.group_name, series.name ORDER BY min(series.id)"""
    return [SeriesRow(*row) for row in connection.execute(query, (trial_id, *ranked.values))]


def read_shown_series(connection: sqlite3.Connection) -> list[SeriesOrigin]:
    query = f"SELECT series.id, trial_id, attempt, rank, group_name, name FROM {_SERIES} WHERE {_SHOWN}"
    return [SeriesOrigin(*row) for row in connection.execute(query)]


def count_shown_points(connection: sqlite3.Connection) -> int:
    query = f"SELECT coalesce(sum(block.count), 0) FROM {BLOCKS} WHERE {_SHOWN} AND {IS_VISIBLE}"
    (count,) = connection.execute(query).fetchone()
    return int(count)


def read_shown_columns(connection: sqlite3.Connection) -> Iterator[PointColumns]:
    """Yields the points that count, of the series that are shown to those who ask for no rank."""
    query = f"SELECT series.id, steps, times, numbers FROM {BLOCKS} WHERE {_SHOWN} AND {IS_VISIBLE}"
    for series_id, *columns in connection.execute(query):
        yield PointColumns(series_id, *map(unpack, columns))


def read_outline(connection: sqlite3.Connection, trial_id: int) -> Outline:
    query = f"""SELECT series.group_name, series.name, rank, is_profile FROM {_SERIES} WHERE attempt.trial_id = ?
        GROUP BY series.group_name, series.name, rank, is_profile ORDER BY min(series.id)"""
    groups: dict[str, None] = {}
    ranks: dict[tuple[str, str], list[Source]] = defaultdict(list)
    for group, name, rank, is_profile in connection.execute(query, (trial_id,)):
        groups[group] = None
        if not is_profile:
            insort(ranks[group, name], rank, key=in_order)
    query = """SELECT DISTINCT resumed_steps FROM attempt
        WHERE trial_id = ? AND rank = 0 AND attempt > 1 AND resumed_steps > 0 ORDER BY resumed_steps"""
    return Outline(
        groups=list(groups),
        ranks=ranks,
        reporting_ranks=sorted(set(chain.from_iterable(ranks.values())), key=in_order),
        resume_points=[steps for (steps,) in connection.execute(query, (trial_id,))],
    )


def read_profile_series(connection: sqlite3.Connection, trial_id: int) -> list[ProfileSeriesRow]:
    query = f"""SELECT rank, series.group_name, series.name FROM {_SERIES} WHERE attempt.trial_id = ? AND is_profile
        GROUP BY rank, series.group_name, series.name ORDER BY rank, min(series.id)"""
    return [ProfileSeriesRow(*row) for row in connection.execute(query, (trial_id,))]


class BucketsOf(msgspec.Struct, frozen=True):
    """The points that are asked for."""

    trial_id: int
    group: str
    name: str
    within: tuple[int, int] | None = None
    """The first and the last step; for the profiler's figures, milliseconds since the Unix epoch."""
    superseded_of: int | None = None
    """The attempt whose superseded points are asked for; None asks for the visible points of all attempts."""
    rank: Source | None = None
    """The rank or the writer that reported the points; None asks for the series that are shown by default."""
    is_profile: bool = False
    only_finite: bool = False
    """Whether infinities are left out of the figures, as NaN always are."""

    def series(self) -> Where:
        """Returns a condition on the tables `attempt` and `series`."""
        ranked = of_rank(self.rank)
        sql = f"""attempt.trial_id = ? AND series.is_profile = ? AND series.group_name = ? AND series.name = ?
            AND {ranked.sql}"""
        values: tuple[object, ...] = (self.trial_id, self.is_profile, self.group, self.name, *ranked.values)
        if self.superseded_of is not None:
            sql, values = f"{sql} AND attempt.attempt = ?", (*values, self.superseded_of)
        return Where(sql, values)

    def blocks(self) -> str:
        """Returns a condition on the tables `series` and `block`."""
        return IS_VISIBLE if self.superseded_of is None else f"NOT ({IS_VISIBLE})"


class _Cell(NamedTuple):
    """The points of a bucket or a bin."""

    first_steps: int
    last_steps: int
    num_points: int
    num_values: int
    """The number of values that count; the other figures are of these."""
    minimum: Metric | None
    maximum: Metric | None
    total: float

    @property
    def mean(self) -> float | None:
        """The mean of the values; None if no value counts, or if there are infinities of both signs."""
        mean = self.total / self.num_values if self.num_values else math.nan
        return None if math.isnan(mean) else mean

    def joined(self, other: _Cell) -> _Cell:
        return _Cell(
            min(self.first_steps, other.first_steps),
            max(self.last_steps, other.last_steps),
            self.num_points + other.num_points,
            self.num_values + other.num_values,
            _least(self.minimum, other.minimum),
            _greatest(self.maximum, other.maximum),
            self.total + other.total,
        )


def read_buckets(connection: sqlite3.Connection, of: BucketsOf, num_buckets: int) -> list[SeriesBucket]:
    """Returns at most `num_buckets` buckets, equally wide in steps, in order. Buckets without points are left out."""
    stretch = _stretch(connection, of)
    if stretch is None:
        return []
    first, last = stretch
    cells = _cells(connection, of, stretch, first, -(-(last - first + 1) // num_buckets))
    return [SeriesBucket(*cell[:3], cell.minimum, cell.maximum, cell.mean) for cell in cells.values()]


def _cells(
    connection: sqlite3.Connection, of: BucketsOf, stretch: tuple[int, int], begin: int, width: int
) -> dict[int, _Cell]:
    """Returns the cells of `width` steps that have points, by their number from step `begin` on, in order."""
    cells: dict[int, _Cell] = {}
    for steps, packed_values in _columns(connection, of, stretch, "numbers"):
        values = unpack_values(packed_values)
        at, end = bisect_left(steps, stretch[0]), bisect_right(steps, stretch[1])
        while at < end:
            number = (steps[at] - begin) // width
            behind = bisect_left(steps, begin + (number + 1) * width, at, end)
            found = numbers_in(values[at:behind], only_finite=of.only_finite)
            extremes = min(found, default=None), max(found, default=None)
            cell = _Cell(steps[at], steps[behind - 1], behind - at, len(found), *extremes, sum(found))
            cells[number] = cells[number].joined(cell) if number in cells else cell
            at = behind
    return dict(sorted(cells.items()))


def _columns(
    connection: sqlite3.Connection, of: BucketsOf, stretch: tuple[int, int], column: str, order: str = ""
) -> Iterator[tuple[array[int], bytes]]:
    """Yields the steps and another column of all blocks with points in a stretch of steps, in any order or in this."""
    where = of.series()
    query = f"""SELECT block.steps, block.{column} FROM {BLOCKS}
        WHERE {where.sql} AND {of.blocks()} AND block.last_steps >= ? AND block.first_steps <= ?
        {"ORDER BY " if order else ""}{order}"""
    for steps, values in connection.execute(query, (*where.values, *stretch)):
        yield unpack_steps(steps), values


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


def read_step_range(
    connection: sqlite3.Connection, trial_ids: Collection[int], group: str, name: str, rank: Source | None
) -> tuple[int, int] | None:
    of_trials, ranked = among("attempt.trial_id", trial_ids), of_rank(rank)
    query = f"""SELECT min({FIRST_STEPS}), max({LAST_VISIBLE_STEPS}) FROM {_SERIES}
        WHERE {of_trials.sql} AND {IS_METRIC} AND group_name = ? AND name = ? AND {ranked.sql}
            AND {LAST_VISIBLE_STEPS} IS NOT NULL"""
    first, last = connection.execute(query, (*of_trials.values, group, name, *ranked.values)).fetchone()
    return None if last is None else (first, last)


def read_bins(connection: sqlite3.Connection, of: BucketsOf, width: int) -> Bins:
    stretch = _stretch(connection, of)
    cells = {} if stretch is None else _cells(connection, of, stretch, 0, width)
    return as_bins(width, [(number, *cell[:6], cell.mean) for number, cell in cells.items()])


def as_bins(width: int, rows: Iterable[Sequence[Any]]) -> Bins:
    """Returns the rows, each a bin's values in the order of `Bins`, as compact columns."""
    columns = list(zip(*rows, strict=True)) or [()] * 8
    integers = [array("q", column) for column in columns[:5]]
    floats = [array("d", (math.nan if value is None else value for value in column)) for column in columns[5:]]
    return Bins(width, *integers, *floats)


def read_bucket_times(connection: sqlite3.Connection, of: BucketsOf, buckets: Sequence[SeriesBucket]) -> list[float]:
    """Returns the time at which the newest point of each bucket was reported, in seconds since the Unix epoch."""
    ends = [int(bucket.last_steps) for bucket in buckets]
    stretch = min(ends, default=0), max(ends, default=0)
    newest: dict[int, float] = {}
    for steps, packed_times in _columns(
        connection, of, stretch, "times", "attempt.attempt, block.last_steps, block.last_order"
    ):
        times = unpack_times(packed_times)
        for end in ends[bisect_left(ends, steps[0]) : bisect_right(ends, steps[-1])]:
            index = bisect_right(steps, end) - 1
            if steps[index] == end:
                newest[end] = times[index]
    return [newest[end] for end in ends if end in newest]


def read_summary(connection: sqlite3.Connection, trial_id: int) -> Summary:
    summary: Summary = defaultdict(dict)
    figures = read_figures(connection, [trial_id])[trial_id]
    for row in read_series(connection, trial_id, None):
        (whole,) = read_buckets(connection, BucketsOf(trial_id, row.group, row.name), 1)
        summary[row.group][row.name] = {
            "count": whole.count,
            "last": figures[row.group][row.name].last,
            "min": whole.minimum,
            "max": whole.maximum,
            "mean": whole.mean,
        }
    return dict(summary)


def read_best_values(
    connection: sqlite3.Connection, experiment_id: int, group: str, name: str, *, smaller_is_better: bool
) -> dict[int, Metric]:
    best = f"min({VISIBLE_MINIMUM})" if smaller_is_better else f"max({VISIBLE_MAXIMUM})"
    query = f"""SELECT trial_id, {best} AS best FROM {_SHOWN_METRICS_OF_TRIALS}
        WHERE trial.experiment_id = ? AND series.group_name = ? AND series.name = ?
        GROUP BY trial_id HAVING best IS NOT NULL ORDER BY trial_id"""
    return dict(connection.execute(query, (experiment_id, group, name)).fetchall())


def read_metric_names(connection: sqlite3.Connection, experiment_id: int) -> set[tuple[str, str]]:
    query = f"""SELECT DISTINCT series.group_name, series.name FROM {_SHOWN_METRICS_OF_TRIALS}
        WHERE trial.experiment_id = ? AND {LAST_VISIBLE_STEPS} IS NOT NULL"""
    return {(group, name) for group, name in connection.execute(query, (experiment_id,))}


def read_figures(
    connection: sqlite3.Connection, trial_ids: Collection[int] | None = None, rank: Source | None = None
) -> FiguresByTrial:
    """Returns the figures of every series with a visible point, of these trials or of all trials."""
    where, ranked = among("attempt.trial_id", trial_ids), of_rank(rank)
    query = f"""SELECT attempt.trial_id, series.group_name, series.name, (
            SELECT block.last FROM block WHERE block.series_id = series.id AND {IS_VISIBLE}
            ORDER BY block.last_steps DESC, block.last_order DESC LIMIT 1
        ), {VISIBLE_MINIMUM}, {VISIBLE_MAXIMUM}, {LAST_VISIBLE_STEPS} AS last_visible_steps
        FROM {_SERIES} WHERE {where.sql} AND {ranked.sql} AND {IS_METRIC} AND last_visible_steps IS NOT NULL
        ORDER BY attempt.attempt, series.id"""
    figures: FiguresByTrial = defaultdict(lambda: defaultdict(dict))
    ends: dict[tuple[int, str, str], int] = {}
    values = (*where.values, *ranked.values)
    for trial_id, group, name, value, minimum, maximum, last_steps in connection.execute(query, values):
        of_group = figures[trial_id][sys.intern(group)]
        found = Figures(unpack_values(value), minimum, maximum)
        if (known := of_group.get(name)) is not None:
            is_last = last_steps >= ends[trial_id, group, name]
            found = _joined(known, found, found.last if is_last else known.last)
        of_group[sys.intern(name)] = found
        ends[trial_id, group, name] = max(last_steps, ends.get((trial_id, group, name), 0))
    return figures


def _joined(one: Figures, other: Figures, last: Metric) -> Figures:
    """Joins the figures of a metric in two attempts; `last` is the value at its highest step."""
    return Figures(last, _least(one.minimum, other.minimum), _greatest(one.maximum, other.maximum))


def _least(*values: Metric | None) -> Metric | None:
    return min((value for value in values if value is not None), default=None)


def _greatest(*values: Metric | None) -> Metric | None:
    return max((value for value in values if value is not None), default=None)
