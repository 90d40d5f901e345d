"""Adds one attempt's journal to the index."""

from __future__ import annotations

import logging
import operator
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import fingerprint
from core_sdk._ground.records import (
    Alert,
    AttemptStarted,
    CheckpointMetadataSet,
    CheckpointStored,
    Dropped,
    Ended,
    MetadataSet,
    OfTrial,
    Profile,
    ProgressReported,
    Record,
    Report,
    Settled,
    Source,
    StallFound,
    StopAcknowledged,
    TrialArchivedSet,
    TrialLabelsChanged,
    TroubleFound,
    from_json,
)
from core_sdk._home.checkpoints import CheckpointRecord
from core_sdk._home.index._blocks import SeriesPoints, in_order, insert_points
from core_sdk._home.index._repeats import insert_later
from core_sdk._home.index._transaction import IndexTransaction
from core_sdk._home.index._values import NOTHING_BESIDE, parts_beside, to_beside, to_numbers
from core_sdk._home.journal import Chunk, read_journal
from core_sdk._home.states import gap_of_settled
from core_sdk._home.superseding import EVERYTHING
from core_sdk._home.time_spent import AttemptClock

logger = logging.getLogger("core_sdk.tracking")

AttemptRow = dict[str, Any]
"""A row of `attempt`."""

_COURSE = (
    "host",
    "started",
    "is_spooled",
    "last_time",
    "resumed_steps",
    "good_until",
    "label_changes",
    "drop_reason",
    "last_steps",
    "archived_attempt",
    "settled",
    "stall",
    "gaps",
    "clock",
)
_END = ("stop_source", "ended", "outcome", "error", "exit_time", "exit_code", "exit_problem")
_COUNTS = ("end_offset", "fingerprint", "mtime_ns", "num_reports", "num_bad_lines", "num_dropped")
_NOT_ENDED: AttemptRow = dict.fromkeys(("stop_source", "ended", "outcome", "error"))
_NOTHING_READ: AttemptRow = dict.fromkeys((*_COURSE, "environment", *_END)) | dict.fromkeys(_COUNTS, 0) | {"told": "{}"}
_UPDATE_ATTEMPT = f"UPDATE attempt SET {', '.join(f'{name} = :{name}' for name in _NOTHING_READ)} WHERE id = :id"

# Only the chief's journal tells how the attempt goes; other records of other ranks and of writers are ignored.
_OF_CHECKPOINTS = get_args(CheckpointRecord)
_OF_EVERY_RANK = (AttemptStarted, Report, Profile, ProgressReported, Dropped)
_OF_WRITERS = (AttemptStarted, Report, Profile, Alert, StopAcknowledged, Dropped, Ended)

_FLOATS = {float}

_decode_clock = json_decoder(AttemptClock)

_SeriesKey = tuple[bool, str, str]
"""A series: whether it is one of the profiler's, its group, and the metric's name."""

_Reports = tuple[list[int], list[float], list[int], list[dict[str, Any]]]
"""The steps, the times, the orders and the values of reports that have the same metrics."""

_Alike = defaultdict[tuple[bool, str, tuple[str, ...]], _Reports]
"""Reports by what they have in common: whether they are the profiler's, their group and the names of their metrics."""


def insert_attempt(connection: sqlite3.Connection, trial_id: int, number: int, rank: Source) -> AttemptRow:
    row = trial_id, number, rank
    inserted = connection.execute("INSERT INTO attempt (trial_id, attempt, rank) VALUES (?, ?, ?)", row)
    return {"id": inserted.lastrowid, "trial_id": trial_id, "attempt": number, "rank": rank, **_NOTHING_READ}


def forget_attempts(connection: sqlite3.Connection, attempt_ids: list[int]) -> None:
    ids = [(attempt_id,) for attempt_id in attempt_ids]
    of_series = "DELETE FROM block WHERE series_id IN (SELECT id FROM series WHERE attempt_id = ?)"
    connection.executemany(of_series, ids)
    connection.executemany("DELETE FROM series WHERE attempt_id = ?", ids)
    connection.executemany("DELETE FROM checkpoint_record WHERE attempt_id = ?", ids)
    connection.executemany("DELETE FROM alert WHERE attempt_id = ?", ids)
    connection.executemany("DELETE FROM mark WHERE attempt_id = ?", ids)
    connection.executemany("DELETE FROM attempt WHERE id = ?", ids)


class JournalIndexer:
    """Adds to the index what one journal gained, and keeps the attempt's row in step with it."""

    def __init__(self, batch: IndexTransaction, row: AttemptRow) -> None:
        self._batch = batch
        self._connection = batch.connection
        self._row = row
        self._told: dict[str, Any] = msgspec.json.decode(row["told"])

    def read(self, journal: Path, size_bytes: int) -> None:
        """Reads the first `size_bytes`. Without a limit, a journal that grows fast enough would be read for ever."""
        for chunk in read_journal(journal, self._row["end_offset"]):
            for bad_line in chunk.bad_lines:
                logger.warning("%s: the line at byte %d %s; skipped", journal, bad_line.offset, bad_line.problem)
            for problem in self._add(chunk):
                logger.warning("%s: a record cannot be kept, since %s; skipped", journal, problem)
            if self._batch.is_full:
                self.save(fingerprint=fingerprint(journal, chunk.end_offset))
                self._batch.commit()
            if chunk.end_offset >= size_bytes:
                break
        self._row["fingerprint"] = fingerprint(journal, self._row["end_offset"])

    def save(self, **columns: object) -> None:
        self._row |= {"told": _json(self._told), **columns}
        self._connection.execute(_UPDATE_ATTEMPT, self._row)

    def _add(self, chunk: Chunk) -> list[ValueError]:
        """Adds the records of a chunk, and returns the reasons for which some are left out."""
        if chunk.records:
            self._row["last_time"] = chunk.records[-1].time
        records = chunk.records
        if rank := self._row["rank"]:
            kept = _OF_WRITERS if isinstance(rank, str) else _OF_EVERY_RANK
            records = [record for record in records if isinstance(record, kept)]
        problems = self._add_points(records) + self._add_others(records)
        if self._row["attempt"] and self._row["rank"] == 0:
            self._add_times(records)
        num_bad_lines = len(chunk.bad_lines) + len(problems)
        self._row["end_offset"] = chunk.end_offset
        self._row["num_bad_lines"] += num_bad_lines
        self._batch.result.num_bad_lines += num_bad_lines
        return problems

    def _add_points(self, records: Iterable[Record]) -> list[ValueError]:
        """Adds reports and profiles, and returns the reasons for which some are left out. This is the hot loop."""
        problems = []
        alike: _Alike = defaultdict(lambda: ([], [], [], []))
        order = self._row["num_reports"]
        for record in records:
            if type(record) is Report:
                steps = record.steps_completed
                has_more = parts_beside(record) != NOTHING_BESIDE
            elif type(record) is Profile:
                steps, has_more = int(record.time * 1000), False
            else:
                continue
            order += 1
            values: dict[str, Any] = record.metrics
            if has_more or not values or not _FLOATS.issuperset(map(type, values.values())):
                try:
                    values = _values_of(record)
                except ValueError as error:
                    problems.append(error)
                    continue
            all_steps, all_times, all_orders, all_values = alike[type(record) is Profile, record.group, tuple(values)]
            all_steps.append(steps)
            all_times.append(record.time)
            all_orders.append(order)
            all_values.append(values)
        self._row["num_reports"] = order
        self._insert_points(alike)
        return problems

    def _insert_points(self, alike: _Alike) -> None:
        """Inserts all points of a series together, so that each block is written once."""
        by_series: defaultdict[_SeriesKey, list[SeriesPoints]] = defaultdict(list)
        with_ties = False
        for (is_profile, group, names), reports in alike.items():
            points = in_order([reports])
            with_ties |= any(map(operator.eq, points.steps, islice(points.steps, 1, None)))
            for name in names:
                values = [values[name] for values in points.values]
                by_series[is_profile, group, name].append(points._replace(values=values))
        num_points = 0
        for key, parts in by_series.items():
            points, series_id = parts[0] if len(parts) == 1 else in_order(parts), self._series_id(*key)
            if key[0]:
                insert_points(self._connection, series_id, points)
            else:
                has_ties = with_ties or len(parts) > 1
                insert_later(self._connection, series_id, points, is_metric=key[2] != "", has_ties=has_ties)
            num_points += len(points.steps)
        self._batch.add_points(num_points)

    def _series_id(self, is_profile: bool, group: str, name: str) -> int:
        """Returns the id of a series, which is inserted into the database if it is new."""
        insert = """INSERT INTO series (attempt_id, is_profile, group_name, name, is_shown, visible_until)
            VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
        key = self._row["id"], is_profile, group, name
        # Whether a report of another rank is shown depends on the ranks below it, and is found when all are read.
        self._connection.execute(insert, (*key, is_profile or self._row["rank"] == 0, EVERYTHING))
        query = """SELECT id FROM series
            WHERE attempt_id = ? AND is_profile = ? AND group_name = ? AND name = ? AND NOT is_repeated"""
        (series_id,) = self._connection.execute(query, key).fetchone()
        return int(series_id)

    def _add_others(self, records: Iterable[Record]) -> list[ValueError]:
        problems = []
        last_steps = self._row["last_steps"]
        for record in records:
            if type(record) is Report:
                last_steps = record.steps_completed
                continue
            try:
                if type(record) is Alert:
                    self._add_alert(record, last_steps)
                else:
                    self._add_other(record)
            except ValueError as error:
                problems.append(error)
        self._row["last_steps"] = last_steps
        return problems

    def _add_other(self, record: Record) -> None:
        row = self._row
        match record:
            case AttemptStarted():
                row["host"] = record.host
                row["started"] = record.time
                row["is_spooled"] = record.is_spooled
                row |= _NOT_ENDED  # a writer may come back
                row["resumed_steps"] = None if row["rank"] else record.resumed_steps
            case OfTrial():
                if isinstance(record, MetadataSet):
                    from_json(record.metadata)
                told = msgspec.structs.asdict(record)
                self._told |= {name: told[name] for name in told.keys() - {"time"} if told[name] is not None}
            case TrialLabelsChanged():
                changes = msgspec.json.decode(row["label_changes"] or "{}")
                changes |= dict.fromkeys(record.added, True) | dict.fromkeys(record.removed, False)
                row["label_changes"] = _json(changes)
            case TrialArchivedSet():
                row["archived_attempt"] = record.attempt
            case Settled():
                row["settled"] = _json(record)
                gaps = msgspec.json.decode(row["gaps"] or "{}")
                row["gaps"] = _json(gaps | {str(record.attempt): gap_of_settled(record)})
            case TroubleFound():
                row["good_until"] = record.good_until if record.spoils else row["good_until"]
            case StallFound():
                row["stall"] = _json(record)
            case StopAcknowledged():
                row["stop_source"] = record.source
            case Dropped():
                row["num_dropped"] += record.count
                row["drop_reason"] = record.reason
            case Ended():
                row |= {"ended": record.time, "outcome": record.outcome, "error": record.error}
            case _ if isinstance(record, _OF_CHECKPOINTS):
                self._add_checkpoint_record(record)

    def _add_times(self, records: Iterable[Record]) -> None:
        """Counts where the time went that the records tell of."""
        told = self._row["clock"]
        clock = AttemptClock() if told is None else _decode_clock(told)
        marks = [(self._row["id"], record.steps_completed, *mark) for record, mark in clock.feed_all(records)]
        self._row["clock"] = _json(clock)
        self._connection.executemany("INSERT INTO mark VALUES (?, ?, ?, ?, ?, ?)", marks)

    def _add_alert(self, record: Alert, last_steps: int | None) -> None:
        steps = (self._row["resumed_steps"] or 0) if last_steps is None else last_steps
        values = self._row["id"], steps, record.time, record.title, record.description, record.level
        self._connection.execute("INSERT INTO alert VALUES (?, ?, ?, ?, ?, ?)", values)

    def _add_checkpoint_record(self, record: CheckpointRecord) -> None:
        if isinstance(record, (CheckpointStored, CheckpointMetadataSet)):
            from_json(record.metadata)
        query = """INSERT INTO checkpoint_record
            SELECT :id, (SELECT count(*) FROM checkpoint_record WHERE attempt_id = :id), :storage_id, :record"""
        values = {"id": self._row["id"], "storage_id": record.storage_id, "record": _json(record)}
        self._connection.execute(query, values)


def _values_of(record: Report | Profile) -> dict[str, Any]:
    """Returns the values of a record by their series. Raises `ValueError` for one that could not be read back."""
    numbers: dict[str, Any] = dict(to_numbers(record.metrics))
    if isinstance(record, Profile):
        return numbers
    beside = to_beside(record)
    return numbers | {"": beside} if beside is not None or not numbers else numbers


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
