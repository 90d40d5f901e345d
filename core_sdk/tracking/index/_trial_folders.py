"""One trial's folder on its way into the index."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import sqlalchemy as sa

from core_sdk.errors import RecordDamagedError
from core_sdk.records import ExitRecord, TrialRecord
from core_sdk.tracking.home import CHANGES_NAME, Home, TrialFolder, journal_name
from core_sdk.tracking.index._attempts import AttemptIndexer, AttemptRow, forget_attempts, insert_attempt
from core_sdk.tracking.index._batch import Batch
from core_sdk.tracking.index._schema import attempt, series, trial
from core_sdk.tracking.index._spans import first_steps, last_visible_steps
from core_sdk.tracking.index._superseding import AttemptSpan, visible_until
from core_sdk.tracking.states import error_told

logger = logging.getLogger("core_sdk.tracking")

# A directory may change again within the same tick of its file system's clock: then its time does not tell.
_YOUNG_NS = 2_000_000_000

_JournalKey = tuple[int, int]
"""Attempt and rank; attempt 0 is what was done from outside."""

_SELECT_ATTEMPTS = (
    sa.select(attempt).where(attempt.c.trial_id == sa.bindparam("trial_id")).order_by(attempt.c.attempt, attempt.c.rank)
)
_SELECT_FIRST_STEPS = sa.select(series.c.id, series.c.group_name, series.c.name, first_steps.label("first")).where(
    series.c.attempt_id == sa.bindparam("attempt_id"), ~series.c.is_profile
)
_SELECT_STEPS_COMPLETED = (
    sa.select(sa.func.max(last_visible_steps))
    .join_from(series, attempt, attempt.c.id == series.c.attempt_id)
    .where(attempt.c.trial_id == sa.bindparam("trial_id"), ~series.c.is_profile)
)
_UPDATE_TRIAL = sa.update(trial).where(trial.c.trial_id == sa.bindparam("row_id"))
_DELETE_TRIAL = sa.delete(trial).where(trial.c.trial_id == sa.bindparam("row_id"))
_UPDATE_VISIBLE = sa.update(series).where(series.c.id == sa.bindparam("series_id"))


@dataclass
class KnownTrial:
    """How a trial's folder looked when it was last indexed to the end."""

    mtime_ns: int
    end_offsets: dict[_JournalKey, int] = field(default_factory=dict)
    """Bytes of each journal that are indexed."""


def known_trials(connection: sa.Connection) -> dict[int, KnownTrial]:
    trials = connection.execute(sa.select(trial.c.trial_id, trial.c.mtime_ns))
    known = {trial_id: KnownTrial(mtime_ns) for trial_id, mtime_ns in trials}
    columns = (attempt.c.trial_id, attempt.c.attempt, attempt.c.rank, attempt.c.end_offset)
    for trial_id, number, rank, end_offset in connection.execute(sa.select(*columns)):
        known[trial_id].end_offsets[number, rank] = end_offset
    return known


def has_changed(home: Home, trial_id: int, known: KnownTrial) -> bool:
    """Files come and go with the directory's time; journals only grow."""
    directory = f"{home.runs}/{trial_id}"
    try:
        # Asked of thousands of trials at once, and `Path` takes five times as long as the system call.
        if os.stat(directory).st_mtime_ns != known.mtime_ns:  # noqa: PTH116
            return True
        return any(
            _size_bytes(f"{directory}/{_journal_name(key)}") != end_offset
            for key, end_offset in known.end_offsets.items()
        )
    except FileNotFoundError:
        return True


def index_trial(folder: TrialFolder, batch: Batch) -> None:
    """Raises `FileNotFoundError` or `TrialNotFoundError` if it is being deleted, `RecordDamagedError`."""
    mtime_ns = folder.path.stat().st_mtime_ns
    is_young = time.time_ns() - mtime_ns < _YOUNG_NS
    record = folder.read_record()
    numbers = folder.attempts()
    # Until the end it counts as changed, so that the successor of a killed indexer looks at it again.
    _write(batch.connection, folder.trial_id, record, mtime_ns=0, num_attempts=len(numbers), steps_completed=0)
    _index_journals(folder, _journals(folder, numbers), batch)
    if len(numbers) > 1:
        _supersede(batch.connection, folder.trial_id)
    steps_completed = batch.connection.scalar(_SELECT_STEPS_COMPLETED, {"trial_id": folder.trial_id})
    columns = {"mtime_ns": 0 if is_young else mtime_ns, "steps_completed": steps_completed or 0}
    batch.connection.execute(_UPDATE_TRIAL, columns | {"row_id": folder.trial_id})
    batch.result.num_trials += 1


def forget_trial(connection: sa.Connection, trial_id: int) -> None:
    rows = connection.execute(_SELECT_ATTEMPTS, {"trial_id": trial_id})
    forget_attempts(connection, [row.id for row in rows])
    connection.execute(_DELETE_TRIAL, {"row_id": trial_id})


def _write(connection: sa.Connection, trial_id: int, record: TrialRecord, **columns: int) -> None:
    row = {
        "trial_id": trial_id,
        "experiment_id": record.experiment_id,
        "created": record.created,
        "hparams": msgspec.json.encode(record.hparams).decode(),
        "continued_from": record.continued_from,
    }
    connection.execute(_DELETE_TRIAL, {"row_id": trial_id})
    connection.execute(sa.insert(trial), row | columns)


def _journals(folder: TrialFolder, numbers: list[int]) -> list[_JournalKey]:
    # Without the chief's journal, an attempt is nothing that another rank's could belong to.
    keys = [(0, 0)] if folder.changes_path.exists() else []
    keys += [(number, 0) for number in numbers]
    return keys + [key for key in folder.rank_journals() if key[0] in numbers]


def _index_journals(folder: TrialFolder, keys: Collection[_JournalKey], batch: Batch) -> None:
    connection = batch.connection
    found = connection.execute(_SELECT_ATTEMPTS, {"trial_id": folder.trial_id})
    rows: dict[_JournalKey, AttemptRow] = {(row.attempt, row.rank): dict(row._mapping) for row in found}
    if rows.keys() - set(keys):
        # What the deleted attempt superseded shows again.
        forget_attempts(connection, [row["id"] for row in rows.values()])
        rows = {}
    for key in keys:
        _index_journal(folder, key, rows.get(key) or insert_attempt(connection, folder.trial_id, *key), batch)


def _index_journal(folder: TrialFolder, key: _JournalKey, row: AttemptRow, batch: Batch) -> None:
    number, rank = key
    journal = folder.path / _journal_name(key)
    size_bytes = _size_bytes(str(journal))
    end, columns = (None, {}) if rank else _read_exit(folder, number)
    if size_bytes == row["end_offset"] and columns.items() <= row.items():
        return
    indexer = AttemptIndexer(batch, row)
    if size_bytes != row["end_offset"]:
        indexer.read(journal, size_bytes)
    indexer.save(**columns, error=error_told(row["error"], end))


def _journal_name(key: _JournalKey) -> str:
    return journal_name(*key) if key[0] else CHANGES_NAME


def _read_exit(folder: TrialFolder, number: int) -> tuple[ExitRecord | None, dict[str, Any]]:
    """How the attempt ended, and the columns that say so."""
    try:
        end = folder.read_exit(number)
    except (RecordDamagedError, OSError) as error:
        logger.warning("%s", error)
        return None, {"exit_problem": "its exit status cannot be read"}
    return end, {"exit_time": end.time, "exit_code": end.code} if end else {}


def _supersede(connection: sa.Connection, trial_id: int) -> None:
    series_ids: list[dict[Hashable, int]] = []
    spans = []
    for row in connection.execute(_SELECT_ATTEMPTS, {"trial_id": trial_id}).all():
        if row.attempt == 0 or row.rank != 0:
            continue
        rows = connection.execute(_SELECT_FIRST_STEPS, {"attempt_id": row.id}).all()
        series_ids.append({(found.group_name, found.name): found.id for found in rows})
        first_by_key: dict[Hashable, int] = {(found.group_name, found.name): found.first for found in rows}
        spans.append(AttemptSpan(row.resumed_steps, first_by_key))
    updates = [
        {"series_id": ids[key], "visible_until": last}
        for ids, visible in zip(series_ids, visible_until(spans), strict=True)
        for key, last in visible.items()
    ]
    if updates:
        connection.execute(_UPDATE_VISIBLE, updates)


def _size_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0
