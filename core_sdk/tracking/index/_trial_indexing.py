"""Adds one trial's folder to the index."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from core_sdk.errors import RecordDamagedError
from core_sdk.records import ExitRecord, TrialRecord
from core_sdk.tracking.home import Home, TrialFolder, journal_name
from core_sdk.tracking.index._batch import Batch
from core_sdk.tracking.index._blocks import split_block
from core_sdk.tracking.index._journal_indexing import AttemptRow, JournalIndexer, forget_attempts, insert_attempt
from core_sdk.tracking.index._schema import BLOCKS, FIRST_STEPS, LAST_VISIBLE_STEPS, among
from core_sdk.tracking.states import error_told
from core_sdk.tracking.superseding import AttemptSpan, visible_until

logger = logging.getLogger("core_sdk.tracking")

# A directory may change again within one tick of its file system's clock, so a recent time proves nothing.
_YOUNG_NS = 2_000_000_000

_JournalKey = tuple[int, int]
"""Attempt and rank. Attempt 0 stands for the changes that were made to the trial from outside."""

_SELECT_ATTEMPTS = "SELECT * FROM attempt WHERE trial_id = ? ORDER BY attempt, rank"


@dataclass
class KnownTrial:
    """The state of a trial's folder when it was last indexed to the end."""

    mtime_ns: int
    end_offsets: dict[_JournalKey, int] = field(default_factory=dict)
    """Bytes of each journal that are indexed."""


def known_trials(connection: sqlite3.Connection, trial_ids: Collection[int] | None = None) -> dict[int, KnownTrial]:
    """Returns the indexed trials by id: these, or all."""
    where = among("trial_id", trial_ids)
    trials = connection.execute(f"SELECT trial_id, mtime_ns FROM trial WHERE {where.sql}", where.values)
    known = {trial_id: KnownTrial(mtime_ns) for trial_id, mtime_ns in trials}
    query = f"SELECT trial_id, attempt, rank, end_offset FROM attempt WHERE {where.sql}"
    for trial_id, attempt, rank, end_offset in connection.execute(query, where.values):
        known[trial_id].end_offsets[attempt, rank] = end_offset
    return known


def has_changed(home: Home, trial_id: int, known: KnownTrial) -> bool:
    """Whether the trial's folder has changed since it was indexed.

    A file that is added or removed changes the directory's time. Journals only grow, so their sizes are compared.
    """
    directory = f"{home.runs}/{trial_id}"
    try:
        # This runs for thousands of trials, and `Path` takes five times as long as the system call.
        if os.stat(directory).st_mtime_ns != known.mtime_ns:  # noqa: PTH116
            return True
        return any(
            _size_bytes(f"{directory}/{journal_name(*key)}") != end_offset
            for key, end_offset in known.end_offsets.items()
        )
    except FileNotFoundError:
        return True


def index_trial(folder: TrialFolder, batch: Batch) -> None:
    """Adds to the index whatever is new in a trial's folder.

    Raises `FileNotFoundError` or `TrialNotFoundError` if the trial is being deleted, and `RecordDamagedError`.
    """
    mtime_ns = folder.path.stat().st_mtime_ns
    is_young = time.time_ns() - mtime_ns < _YOUNG_NS
    record = folder.read_record()
    numbers = folder.attempts()
    _write(batch.connection, folder.trial_id, record, len(numbers))
    _index_journals(folder, _journals(folder, numbers), batch)
    _show_lowest_ranks(batch.connection, folder.trial_id)
    if len(numbers) > 1:
        _supersede(batch.connection, folder.trial_id)
    batch.connection.execute(
        f"""UPDATE trial SET mtime_ns = :mtime_ns, steps_completed = coalesce((
            SELECT max({LAST_VISIBLE_STEPS}) FROM series JOIN attempt ON attempt.id = series.attempt_id
            WHERE attempt.trial_id = :trial_id AND NOT series.is_profile), 0), mark = coalesce((
            SELECT group_concat(id || ':' || end_offset || ':' || ifnull(exit_time, ''))
            FROM attempt WHERE attempt.trial_id = :trial_id), '')
        WHERE trial_id = :trial_id""",
        {"trial_id": folder.trial_id, "mtime_ns": 0 if is_young else mtime_ns},
    )
    batch.result.num_trials += 1


def forget_trial(connection: sqlite3.Connection, trial_id: int) -> None:
    forget_attempts(connection, [row["id"] for row in connection.execute(_SELECT_ATTEMPTS, (trial_id,))])
    connection.execute("DELETE FROM trial WHERE trial_id = ?", (trial_id,))


def _write(connection: sqlite3.Connection, trial_id: int, record: TrialRecord, num_attempts: int) -> None:
    hparams, labels = (msgspec.json.encode(value).decode() for value in (record.hparams, record.labels))
    # Without a time the trial counts as changed, so that after a kill it is indexed again.
    described = labels, record.name, record.notes, record.seed
    row = trial_id, record.experiment_id, record.created, hparams, *described, record.continued_from, num_attempts
    connection.execute("INSERT OR REPLACE INTO trial VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, '')", row)


def _journals(folder: TrialFolder, numbers: list[int]) -> list[_JournalKey]:
    # Another rank's journal counts only beside the chief's journal of the same attempt.
    keys = [(0, 0)] if folder.changes_path.exists() else []
    keys += [(number, 0) for number in numbers]
    return keys + [key for key in folder.rank_journals() if key[0] in numbers]


def _index_journals(folder: TrialFolder, keys: Collection[_JournalKey], batch: Batch) -> None:
    connection = batch.connection
    found = connection.execute(_SELECT_ATTEMPTS, (folder.trial_id,))
    rows: dict[_JournalKey, AttemptRow] = {(row["attempt"], row["rank"]): dict(row) for row in found}
    if rows.keys() - set(keys):
        # What a deleted attempt had superseded must be shown again.
        forget_attempts(connection, [row["id"] for row in rows.values()])
        rows = {}
    for key in keys:
        _index_journal(folder, key, rows.get(key) or insert_attempt(connection, folder.trial_id, *key), batch)


def _index_journal(folder: TrialFolder, key: _JournalKey, row: AttemptRow, batch: Batch) -> None:
    number, rank = key
    journal = folder.journal_path(*key)
    size_bytes = _size_bytes(str(journal))
    end, columns = (None, {}) if rank or not number else _read_exit(folder, number)
    if not rank and number and row["environment"] is None:
        columns |= _read_environment(folder, number)
    if size_bytes == row["end_offset"] and columns.items() <= row.items():
        return
    indexer = JournalIndexer(batch, row)
    if size_bytes != row["end_offset"]:
        indexer.read(journal, size_bytes)
    indexer.save(**columns, error=error_told(row["error"], end))


def _read_exit(folder: TrialFolder, number: int) -> tuple[ExitRecord | None, dict[str, Any]]:
    """Returns the attempt's exit record, if any, and the columns to write for it."""
    try:
        end = folder.read_exit(number)
    except (RecordDamagedError, OSError) as error:
        logger.warning("%s", error)
        return None, {"exit_problem": "its exit status cannot be read"}
    return end, {"exit_time": end.time, "exit_code": end.code} if end else {}


def _read_environment(folder: TrialFolder, number: int) -> dict[str, Any]:
    try:
        found = folder.read_environment(number)
    except (RecordDamagedError, OSError) as error:
        logger.warning("%s", error)
        found = None
    return {} if found is None else {"environment": msgspec.json.encode(found).decode()}


def _show_lowest_ranks(connection: sqlite3.Connection, trial_id: int) -> None:
    """Sets which series of ranks other than 0 are shown: those that no lower rank of the attempt has.

    A series of the parts beside metrics is shown only if no lower rank has reported in its group.
    """
    connection.execute(
        """UPDATE series SET is_shown = NOT EXISTS (
            SELECT 1 FROM attempt JOIN attempt AS own ON own.id = series.attempt_id
                AND own.trial_id = attempt.trial_id AND own.attempt = attempt.attempt AND own.rank > attempt.rank
            JOIN series AS lower ON lower.attempt_id = attempt.id AND NOT lower.is_profile
                AND lower.group_name = series.group_name AND (series.name = '' OR lower.name = series.name)
            WHERE attempt.trial_id = :trial_id
        ) WHERE NOT is_profile AND attempt_id IN (SELECT id FROM attempt WHERE trial_id = :trial_id AND rank > 0)""",
        {"trial_id": trial_id},
    )


def _supersede(connection: sqlite3.Connection, trial_id: int) -> None:
    """Sets the step up to which each series is visible. All ranks of an attempt resume from the same checkpoint."""
    series_ids: list[dict[Hashable, int]] = []
    spans = []
    query = f"""SELECT series.id, rank, group_name, name, {FIRST_STEPS} FROM series
        JOIN attempt ON attempt.id = attempt_id WHERE trial_id = ? AND attempt.attempt = ? AND NOT is_profile"""
    for row in connection.execute(_SELECT_ATTEMPTS, (trial_id,)).fetchall():
        if row["attempt"] == 0 or row["rank"] != 0:
            continue
        found = connection.execute(query, (trial_id, row["attempt"])).fetchall()
        series_ids.append({tuple(key): series_id for series_id, *key, _ in found})
        spans.append(AttemptSpan(row["resumed_steps"], {tuple(key): first for _, *key, first in found}))
    updates = [
        (last, ids[key])
        for ids, visible in zip(series_ids, visible_until(spans), strict=True)
        for key, last in visible.items()
    ]
    connection.executemany("UPDATE series SET visible_until = ? WHERE id = ?", updates)
    query = f"""SELECT block.rowid, series.visible_until FROM {BLOCKS}
        WHERE trial_id = ? AND block.first_steps <= series.visible_until AND block.last_steps > series.visible_until"""
    for rowid, last_steps in connection.execute(query, (trial_id,)).fetchall():
        split_block(connection, rowid, last_steps)


def _size_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except FileNotFoundError:
        return 0
