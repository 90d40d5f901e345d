"""Adds one attempt's journal to the index."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import msgspec

from core_sdk.journal import Chunk, read_journal
from core_sdk.records import (
    Alert,
    AttemptStarted,
    CheckpointMetadataSet,
    CheckpointStored,
    Dropped,
    Ended,
    MetadataSet,
    Profile,
    ProgressReported,
    Record,
    Report,
    Settled,
    StatusSet,
    StopAcknowledged,
    TrialArchivedSet,
    TrialDescribed,
    TrialLabelsChanged,
    from_json,
)
from core_sdk.tracking.checkpoints import CheckpointRecord
from core_sdk.tracking.index._batch import Batch
from core_sdk.tracking.index._series_table import SeriesTable
from core_sdk.tracking.index._values import TICKS_PER_S, to_beside, to_column

logger = logging.getLogger("core_sdk.tracking")

AttemptRow = dict[str, Any]
"""A row of `attempt`."""

_COURSE = (
    "host",
    "started",
    "last_time",
    "resumed_steps",
    "progress",
    "status",
    "metadata",
    "label_changes",
    "new_name",
    "new_notes",
    "last_steps",
    "archived_attempt",
    "settled",
)
_END = ("stop_source", "ended", "outcome", "error", "exit_time", "exit_code", "exit_problem")
_COUNTS = ("end_offset", "num_bad_lines", "num_dropped")
_NOTHING_READ: AttemptRow = dict.fromkeys((*_COURSE, "environment", *_END)) | dict.fromkeys(_COUNTS, 0)
_UPDATE_ATTEMPT = f"UPDATE attempt SET {', '.join(f'{name} = :{name}' for name in _NOTHING_READ)} WHERE id = :id"

# Only the chief's journal tells how the attempt goes; other records of other ranks are ignored.
_OF_CHECKPOINTS = get_args(CheckpointRecord)
_OF_EVERY_RANK = (AttemptStarted, Report, Profile, ProgressReported, Dropped)


def insert_attempt(connection: sqlite3.Connection, trial_id: int, number: int, rank: int) -> AttemptRow:
    row = trial_id, number, rank
    inserted = connection.execute("INSERT INTO attempt (trial_id, attempt, rank) VALUES (?, ?, ?)", row)
    return {"id": inserted.lastrowid, "trial_id": trial_id, "attempt": number, "rank": rank, **_NOTHING_READ}


def forget_attempts(connection: sqlite3.Connection, attempt_ids: list[int]) -> None:
    _forget_content(connection, attempt_ids)
    connection.executemany("DELETE FROM attempt WHERE id = ?", [(attempt_id,) for attempt_id in attempt_ids])


class JournalIndexer:
    """Adds to the index what one journal gained, and keeps the attempt's row in step with it."""

    def __init__(self, batch: Batch, row: AttemptRow) -> None:
        self._batch = batch
        self._connection = batch.connection
        self._row = row
        self._series = SeriesTable(batch.connection, row["id"], row["rank"])

    def read(self, journal: Path, size_bytes: int) -> None:
        """Reads the first `size_bytes`. Without a limit, a journal that grows fast enough would be read for ever."""
        if size_bytes < self._row["end_offset"]:
            self._start_anew()
        for chunk in read_journal(journal, self._row["end_offset"]):
            for bad_line in chunk.bad_lines:
                logger.warning("%s: the line at byte %d %s; skipped", journal, bad_line.offset, bad_line.problem)
            for problem in self._add(chunk):
                logger.warning("%s: a record cannot be kept, since %s; skipped", journal, problem)
            if self._batch.is_full:
                self.save()
                self._batch.commit()
            if chunk.end_offset >= size_bytes:
                break

    def save(self, **columns: object) -> None:
        self._row |= columns
        self._connection.execute(_UPDATE_ATTEMPT, self._row)

    def _start_anew(self) -> None:
        _forget_content(self._connection, [self._row["id"]])
        self._row |= _NOTHING_READ
        self._series = SeriesTable(self._connection, self._row["id"], self._row["rank"])

    def _add(self, chunk: Chunk) -> list[ValueError]:
        """Adds the records of a chunk, and returns the reasons for which some are left out."""
        if chunk.records:
            if self._row["started"] is None:
                self._row["started"] = chunk.records[0].time
            self._row["last_time"] = chunk.records[-1].time
        records = chunk.records
        if self._row["rank"]:
            records = [record for record in records if isinstance(record, _OF_EVERY_RANK)]
        problems = self._add_reports(records) + self._add_others(records)
        num_bad_lines = len(chunk.bad_lines) + len(problems)
        self._row["end_offset"] = chunk.end_offset
        self._row["num_bad_lines"] += num_bad_lines
        self._batch.add_points(self._series.insert_points())
        self._batch.result.num_bad_lines += num_bad_lines
        return problems

    def _add_reports(self, records: Iterable[Record]) -> list[ValueError]:
        """Adds the reports, and returns the reasons for which some are left out. This is the hot loop."""
        started = self._row["started"]
        problems = []
        for record in records:
            if type(record) is not Report:
                continue
            try:
                values = [value if type(value) is float else to_column(value) for value in record.metrics.values()]
                has_more = record.batch_metrics is not None or record.json_metrics is not None or None in values
                beside = to_beside(record) if has_more else None
            except ValueError as error:
                problems.append(error)
                continue
            steps = record.steps_completed
            ticks = int((record.time - started) * TICKS_PER_S)
            for name, value in zip(record.metrics, values, strict=True):
                series_id, points = self._series[False, record.group, name]
                points.append((series_id, steps, ticks, value))
            if beside is not None or not values:
                series_id, points = self._series[False, record.group, ""]
                points.append((series_id, steps, ticks, beside))
        return problems

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
                row["resumed_steps"] = None if row["rank"] else record.resumed_steps
            case Profile():
                self._add_profile(record)
            case ProgressReported():
                row["progress"] = record.progress
            case StatusSet():
                row["status"] = record.status
            case MetadataSet():
                row["metadata"] = _free_json(record.metadata)
            case TrialLabelsChanged():
                changes = msgspec.json.decode(row["label_changes"] or "{}")
                changes |= dict.fromkeys(record.added, True) | dict.fromkeys(record.removed, False)
                row["label_changes"] = _json(changes)
            case TrialDescribed():
                row["new_name"] = row["new_name"] if record.name is None else record.name
                row["new_notes"] = row["new_notes"] if record.notes is None else record.notes
            case TrialArchivedSet():
                row["archived_attempt"] = record.attempt
            case Settled():
                row["settled"] = _json(record)
            case StopAcknowledged():
                row["stop_source"] = record.source
            case Dropped():
                row["num_dropped"] += record.count
            case Ended():
                row |= {"ended": record.time, "outcome": record.outcome, "error": record.error}
            case _ if isinstance(record, _OF_CHECKPOINTS):
                self._add_checkpoint_record(record)

    def _add_profile(self, record: Profile) -> None:
        ticks = int((record.time - self._row["started"]) * TICKS_PER_S)
        values = [to_column(value) for value in record.metrics.values()]
        for name, value in zip(record.metrics, values, strict=True):
            series_id, points = self._series[True, record.group, name]
            points.append((series_id, int(record.time * 1000), ticks, value))

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


def _forget_content(connection: sqlite3.Connection, attempt_ids: list[int]) -> None:
    ids = [(attempt_id,) for attempt_id in attempt_ids]
    of_series = "DELETE FROM point WHERE series_id IN (SELECT id FROM series WHERE attempt_id = ?)"
    connection.executemany(of_series, ids)
    connection.executemany("DELETE FROM series WHERE attempt_id = ?", ids)
    connection.executemany("DELETE FROM checkpoint_record WHERE attempt_id = ?", ids)
    connection.executemany("DELETE FROM alert WHERE attempt_id = ?", ids)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _free_json(value: object) -> str:
    """Returns a free-form value as JSON text. Raises `ValueError` for a value that could not be read back."""
    from_json(value)
    return _json(value)
