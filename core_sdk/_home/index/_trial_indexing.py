"""Adds one trial's folder to the index."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from core_sdk._ground.files import NotRegularError, fingerprint
from core_sdk._ground.records import ExitRecord, Source, TrialRecord
from core_sdk._home.folders import TrialFolder, journal_name
from core_sdk._home.index._blocks import split_block
from core_sdk._home.index._journal_indexing import AttemptRow, JournalIndexer, forget_attempts, insert_attempt
from core_sdk._home.index._repeats import hide_repeated
from core_sdk._home.index._schema import BLOCKS, FIRST_STEPS, LAST_STEPS, LAST_VISIBLE_STEPS, OF_TRIAL, among
from core_sdk._home.index._transaction import IndexTransaction
from core_sdk._home.states import error_told
from core_sdk._home.superseding import kept_until
from core_sdk.errors import RecordDamagedError

logger = logging.getLogger("core_sdk.tracking")

# A directory may change again within one tick of its file system's clock, so a recent time proves nothing.
_YOUNG_NS = 2_000_000_000

_JournalKey = tuple[int, Source]
"""Attempt, and rank or writer. Attempt 0 stands for the changes that were made to the trial from outside."""

_MetricKey = tuple[Source, str, str]
"""Rank or writer, group and name."""

_SELECT_ATTEMPTS = "SELECT * FROM attempt WHERE trial_id = ? ORDER BY attempt, rank"


_FileState = tuple[int, int]
"""The size of a journal in bytes, and the time of its last change in ns: they change whenever its content does."""


class KnownTrial(NamedTuple):
    """The state of a trial's folder when it was last indexed to the end."""

    mtime_ns: int
    journals: list[tuple[int, Source, _FileState]]
    """The journals: attempt and rank or writer of each, the bytes that are indexed, and its last change then."""


def known_trials(connection: sqlite3.Connection, trial_ids: Collection[int] | None = None) -> dict[int, KnownTrial]:
    """Returns the indexed trials by id: these, or all."""
    where = among("trial_id", trial_ids)
    trials = connection.execute(f"SELECT trial_id, mtime_ns FROM trial WHERE {where.sql}", where.values)
    known = {trial_id: KnownTrial(mtime_ns, []) for trial_id, mtime_ns in trials}
    query = f"SELECT trial_id, attempt, rank, end_offset, attempt.mtime_ns FROM attempt WHERE {where.sql}"
    for trial_id, attempt, rank, size_bytes, mtime_ns in connection.execute(query, where.values):
        known[trial_id].journals.append((attempt, rank, (size_bytes, mtime_ns)))
    return known


def has_changed(runs: Path, trial_id: int, known: KnownTrial) -> bool:
    """Returns whether the trial's folder in `runs` has changed since it was indexed.

    A file that is added or removed changes the directory's time. A journal that has grown, or that was replaced by
    another one, has another size or time.
    """
    directory = f"{runs}/{trial_id}"
    try:
        # This runs for thousands of trials, and `Path` takes five times as long as the system call.
        if os.stat(directory).st_mtime_ns != known.mtime_ns:  # noqa: PTH116
            return True
        for attempt, rank, look in known.journals:
            if _file_state(f"{directory}/{journal_name(attempt, rank)}") != look:
                return True
    except FileNotFoundError:
        return True
    return False


def _file_state(path: str) -> _FileState:
    try:
        status = os.stat(path)  # noqa: PTH116  (this runs for thousands of journals, and `Path` is slow)
    except FileNotFoundError:
        return 0, 0
    except PermissionError:
        return -1, -1  # unlike any that was read, so that it is tried again
    return status.st_size, status.st_mtime_ns


def index_trial(folder: TrialFolder, batch: IndexTransaction) -> None:
    """Adds to the index whatever is new in a trial's folder.

    Raises `FileNotFoundError` or `TrialNotFoundError` if the trial is being deleted, and `RecordDamagedError`.
    """
    mtime_ns = folder.path.stat().st_mtime_ns
    is_young = time.time_ns() - mtime_ns < _YOUNG_NS
    record = folder.read_record()
    numbers = folder.attempts()
    _write(batch.connection, folder, record, len(numbers))
    _index_journals(folder, _journals(folder, numbers), batch)
    _show_lowest_ranks(batch.connection, folder.trial_id)
    if len(numbers) > 1:
        _supersede(batch.connection, folder.trial_id)
    batch.connection.execute(
        f"""UPDATE trial SET mtime_ns = :mtime_ns, steps_completed = coalesce((
            SELECT max({LAST_VISIBLE_STEPS}) FROM series JOIN attempt ON attempt.id = series.attempt_id
            WHERE attempt.trial_id = :trial_id AND NOT series.is_profile), 0), mark = coalesce((
            SELECT group_concat(id || ':' || end_offset || ':' || fingerprint || ':' || ifnull(exit_time, ''))
            FROM attempt WHERE attempt.trial_id = :trial_id), '')
        WHERE trial_id = :trial_id""",
        {"trial_id": folder.trial_id, "mtime_ns": 0 if is_young else mtime_ns},
    )
    batch.result.num_trials += 1


def forget_trial(connection: sqlite3.Connection, trial_id: int) -> None:
    forget_attempts(connection, [row["id"] for row in connection.execute(_SELECT_ATTEMPTS, (trial_id,))])
    connection.execute("DELETE FROM trial WHERE trial_id = ?", (trial_id,))


def _write(connection: sqlite3.Connection, folder: TrialFolder, record: TrialRecord, num_attempts: int) -> None:
    told = {name: getattr(record, name) for name in OF_TRIAL} | folder.origin()
    recorded = msgspec.json.encode(told).decode()
    # Without a time the trial counts as changed, so that after a kill it is indexed again.
    row = folder.trial_id, record.experiment_id, recorded, num_attempts
    connection.execute("INSERT OR REPLACE INTO trial VALUES (?, ?, ?, ?, 0, 0, '')", row)


def _journals(folder: TrialFolder, numbers: list[int]) -> list[_JournalKey]:
    # The journal of another rank or of a writer counts only if the attempt has the chief's journal, too.
    keys: list[_JournalKey] = [(0, 0)] if folder.changes_path.exists() else []
    keys += [(number, 0) for number in numbers]
    return keys + [key for key in folder.other_journals() if key[0] in numbers]


def _index_journals(folder: TrialFolder, keys: Collection[_JournalKey], batch: IndexTransaction) -> None:
    connection = batch.connection
    found = connection.execute(_SELECT_ATTEMPTS, (folder.trial_id,))
    rows: dict[_JournalKey, AttemptRow] = {(row["attempt"], row["rank"]): dict(row) for row in found}
    looks = {key: _file_state(str(folder.journal_path(*key))) for key in keys}
    if rows.keys() - looks.keys() or any(_is_replaced(folder, key, rows[key], looks[key]) for key in rows):
        # What an attempt had superseded that is gone must be shown again.
        forget_attempts(connection, [row["id"] for row in rows.values()])
        rows = {}
    for key, look in looks.items():
        row = rows.get(key) or insert_attempt(connection, folder.trial_id, *key)
        _index_journal(folder, key, row, look, batch)


def _is_replaced(folder: TrialFolder, key: _JournalKey, row: AttemptRow, look: _FileState) -> bool:
    """Returns whether the indexed part of a journal has changed since: the file was replaced, or cut."""
    if look == (row["end_offset"], row["mtime_ns"]):
        return False
    try:
        is_same = fingerprint(folder.journal_path(*key), row["end_offset"]) == row["fingerprint"]
    except (NotRegularError, FileNotFoundError):
        is_same = row["end_offset"] == 0
    return not is_same or look[0] < int(row["end_offset"])


def _index_journal(
    folder: TrialFolder, key: _JournalKey, row: AttemptRow, look: _FileState, batch: IndexTransaction
) -> None:
    number, rank = key
    end, columns = (None, {}) if rank or not number else _read_exit(folder, number)
    if not rank and number and row["environment"] is None:
        columns |= _read_environment(folder, number)
    size_bytes, columns["mtime_ns"] = look
    if size_bytes == row["end_offset"] and columns.items() <= row.items():
        return
    indexer = JournalIndexer(batch, row)
    if size_bytes != row["end_offset"]:
        indexer.read(folder.journal_path(*key), size_bytes)
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
    """Sets which series are shown: those of rank 0, and others that no lower rank of the attempt has.

    A series of parts that are no metrics is shown only if no lower rank has reported in its group. Of the metric by
    which an experiment decides, only the series of its writer is shown, if the experiment names one.
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
    query = """SELECT writers_metric AS name, writer FROM experiment JOIN trial USING (experiment_id)
        WHERE trial_id = ? AND writer IS NOT NULL"""
    if (decides := connection.execute(query, (trial_id,)).fetchone()) is not None:
        connection.execute(
            """UPDATE series SET is_shown = attempt_id IN (
                SELECT id FROM attempt WHERE trial_id = :trial_id AND rank = :writer
            ) WHERE NOT is_profile AND group_name = 'validation' AND name = :name
                AND attempt_id IN (SELECT id FROM attempt WHERE trial_id = :trial_id)""",
            {"trial_id": trial_id, **decides},
        )


def _supersede(connection: sqlite3.Connection, trial_id: int) -> None:
    """Hides what later attempts have superseded. All ranks of an attempt resume from the same checkpoint.

    A writer's reports belong to the attempt that they tell of.
    """
    rows = connection.execute(_SELECT_ATTEMPTS, (trial_id,)).fetchall()
    kept = kept_until({row["attempt"]: row["resumed_steps"] for row in rows if row["attempt"] and not row["rank"]})
    for number, last_steps in kept.items():
        values = last_steps, trial_id, number
        connection.execute("UPDATE attempt SET kept_until = ? WHERE trial_id = ? AND attempt = ?", values)
        connection.execute(
            """UPDATE series SET visible_until = ? WHERE NOT is_profile AND NOT is_repeated
                AND attempt_id IN (SELECT id FROM attempt WHERE trial_id = ? AND attempt = ?)""",
            values,
        )
    query = f"""SELECT block.rowid, series.visible_until FROM {BLOCKS}
        WHERE trial_id = ? AND block.first_steps <= series.visible_until AND block.last_steps > series.visible_until"""
    for rowid, last_steps in connection.execute(query, (trial_id,)).fetchall():
        split_block(connection, rowid, last_steps)
    later: list[dict[_MetricKey, _Span]] = []
    for number in sorted(kept, reverse=True):
        spans = _spans(connection, trial_id, number, kept[number])
        for others in later:
            for key in spans.keys() & others.keys():
                earlier, again = spans[key], others[key]
                first, last = max(earlier.first, again.first), min(earlier.last, again.last)
                if first <= last:
                    hide_repeated(connection, earlier.series_id, again.series_id, first, last)
        later.append(spans)


class _Span(NamedTuple):
    """The series of a metric in an attempt, and the first and the last of its steps that no resume has superseded."""

    series_id: int
    first: int
    last: int


def _spans(connection: sqlite3.Connection, trial_id: int, attempt: int, kept_until: int) -> dict[_MetricKey, _Span]:
    query = f"""SELECT rank, group_name, name, series.id, {FIRST_STEPS}, min(?, {LAST_STEPS}) FROM series
        JOIN attempt ON attempt.id = attempt_id
        WHERE trial_id = ? AND attempt.attempt = ? AND NOT is_profile AND NOT is_repeated"""
    found = connection.execute(query, (kept_until, trial_id, attempt))
    return {(rank, group, name): _Span(*span) for rank, group, name, *span in found if span[1] is not None}
