"""One attempt's journal on its way into the index."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from core_sdk.journal import Chunk, read_journal
from core_sdk.records import (
    AttemptStarted,
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointMetadataSet,
    CheckpointPinned,
    CheckpointPruned,
    CheckpointStored,
    CheckpointUnpinned,
    Dropped,
    Ended,
    MetadataSet,
    Profile,
    Progress,
    Record,
    Report,
    StatusSet,
    StopAcknowledged,
    from_json,
)
from core_sdk.tracking.index._batch import Batch
from core_sdk.tracking.index._schema import (
    attempt,
    checkpoint,
    checkpoint_change,
    checkpoint_deleted,
    point,
    series,
)
from core_sdk.tracking.index._series_table import SeriesTable
from core_sdk.tracking.index._values import TICKS_PER_S, to_beside, to_column

logger = logging.getLogger("core_sdk.tracking")

AttemptRow = dict[str, Any]
"""A row of `attempt`."""

_UPDATE_ATTEMPT = sa.update(attempt).where(attempt.c.id == sa.bindparam("row_id"))

_KEY = ("id", "trial_id", "attempt", "rank")
_NOTHING_READ: AttemptRow = {
    column.name: None for column in attempt.columns.values() if column.name not in _KEY
} | dict.fromkeys(("end_offset", "num_bad_lines", "num_dropped"), 0)

# The chief's journal alone tells how the training goes, whatever another rank's should hold.
_OF_EVERY_RANK = (AttemptStarted, Profile, Progress, Dropped)


def insert_attempt(connection: sa.Connection, trial_id: int, number: int, rank: int) -> AttemptRow:
    row = {"trial_id": trial_id, "attempt": number, "rank": rank, **_NOTHING_READ}
    return row | {"id": connection.scalar(sa.insert(attempt).returning(attempt.c.id), row)}


def forget_attempts(connection: sa.Connection, attempt_ids: list[int]) -> None:
    _forget_content(connection, attempt_ids)
    connection.execute(sa.delete(attempt).where(attempt.c.id.in_(attempt_ids)))


class AttemptIndexer:
    """Adds what one journal gained, and keeps the attempt's row in step with it."""

    def __init__(self, batch: Batch, row: AttemptRow) -> None:
        self._batch = batch
        self._connection = batch.connection
        self._row = row
        self._series = SeriesTable(batch.connection, row["id"])

    def read(self, journal: Path, size_bytes: int) -> None:
        """`size_bytes` is the journal's size. What it gains meanwhile may come as fast as we read: it is left."""
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
        self._connection.execute(_UPDATE_ATTEMPT, self._row | {"row_id": self._row["id"]})

    def _start_anew(self) -> None:
        _forget_content(self._connection, [self._row["id"]])
        self._row |= _NOTHING_READ
        self._series = SeriesTable(self._connection, self._row["id"])

    def _add(self, chunk: Chunk) -> list[ValueError]:
        """Returns why some of the records are left out."""
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
        self._batch.result.num_points += self._series.insert_points()
        self._batch.result.num_bad_lines += num_bad_lines
        return problems

    def _add_reports(self, records: Iterable[Record]) -> list[ValueError]:
        """The hot loop."""
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
            group = self._series[record.group]
            for name, value in zip(record.metrics, values, strict=True):
                series_id, points = group[name]
                points += (series_id, steps, ticks, value)
            if beside is not None or not values:
                series_id, points = group[""]
                points += (series_id, steps, ticks, beside)
        return problems

    def _add_others(self, records: Iterable[Record]) -> list[ValueError]:
        problems = []
        for record in records:
            if type(record) is not Report:
                try:
                    self._add_other(record)
                except ValueError as error:
                    problems.append(error)
        return problems

    def _add_other(self, record: Record) -> None:
        row = self._row
        match record:
            case AttemptStarted():
                row["host"] = record.host
                row["resumed_steps"] = None if row["rank"] else record.resumed_steps
            case Profile():
                self._add_profile(record)
            case Progress():
                row["progress"] = record.progress
            case StatusSet():
                row["status"] = record.status
            case MetadataSet():
                row["metadata"] = _free_json(record.metadata)
            case CheckpointStored():
                self._add_checkpoint(record)
            case CheckpointCondemned() | CheckpointDeleted():
                values = {"attempt_id": row["id"], "storage_id": record.storage_id}
                self._connection.execute(sa.insert(checkpoint_deleted).prefix_with("OR IGNORE"), values)
            case CheckpointPruned() | CheckpointPinned() | CheckpointUnpinned() | CheckpointMetadataSet():
                self._add_checkpoint_change(record)
            case StopAcknowledged():
                row["stop_source"] = record.source
            case Dropped():
                row["num_dropped"] += record.count
            case Ended():
                row |= {"ended": record.time, "outcome": record.outcome, "error": record.error}

    def _add_profile(self, record: Profile) -> None:
        ticks = int((record.time - self._row["started"]) * TICKS_PER_S)
        group = self._series.profile(record.group)
        values = [to_column(value) for value in record.metrics.values()]
        for name, value in zip(record.metrics, values, strict=True):
            series_id, points = group[name]
            points += (series_id, int(record.time * 1000), ticks, value)

    def _add_checkpoint(self, record: CheckpointStored) -> None:
        values = {
            "attempt_id": self._row["id"],
            "position": self._num_rows(checkpoint),
            "storage_id": record.storage_id,
            "steps_completed": record.steps_completed,
            "time": record.time,
            "storage": record.storage,
            "metadata": _free_json(record.metadata),
            "resources": _json(record.resources),
        }
        self._connection.execute(sa.insert(checkpoint), values)

    def _add_checkpoint_change(
        self, record: CheckpointPruned | CheckpointPinned | CheckpointUnpinned | CheckpointMetadataSet
    ) -> None:
        if isinstance(record, CheckpointMetadataSet):
            from_json(record.metadata)
        values = {
            "attempt_id": self._row["id"],
            "position": self._num_rows(checkpoint_change),
            "storage_id": record.storage_id,
            "record": _json(record),
            "is_pruning": isinstance(record, CheckpointPruned),
        }
        self._connection.execute(sa.insert(checkpoint_change), values)

    def _num_rows(self, table: sa.Table) -> int:
        count = sa.select(sa.func.count()).select_from(table).where(table.c.attempt_id == self._row["id"])
        return self._connection.scalar(count) or 0


def _forget_content(connection: sa.Connection, attempt_ids: list[int]) -> None:
    of_attempts = series.c.attempt_id.in_(attempt_ids)
    connection.execute(sa.delete(point).where(point.c.series_id.in_(sa.select(series.c.id).where(of_attempts))))
    for table in (series, checkpoint, checkpoint_change, checkpoint_deleted):
        connection.execute(sa.delete(table).where(table.c.attempt_id.in_(attempt_ids)))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _free_json(value: object) -> str:
    """Of a free-form value. Raises `ValueError` for what could not be read back."""
    from_json(value)
    return _json(value)
