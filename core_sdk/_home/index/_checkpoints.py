"""Answers questions about checkpoints from the index."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.records import MANIFEST_NAME, CheckpointStored, Metric, from_json
from core_sdk._home.checkpoints import CheckpointFold, CheckpointRecord, RecordedCheckpoint
from core_sdk._home.folders import Home
from core_sdk._home.index._blocks import unpack_steps, unpack_values
from core_sdk._home.index._schema import BLOCKS, IS_METRIC, OF_CHECKPOINT, Where, among
from core_sdk._home.rows import CheckpointRow, CheckpointState
from core_sdk._home.storages import storage_url

_decode = json_decoder(CheckpointRecord)
_RECORDS = "checkpoint_record JOIN attempt ON attempt.id = attempt_id JOIN trial USING (trial_id)"


def read_checkpoints(connection: sqlite3.Connection, home: Home, where: Where) -> list[CheckpointRow]:
    """Returns the checkpoints of the newest trial first, and the newest of each trial first."""
    rows = []
    for (trial_id, experiment_id), checkpoints in _folded(connection, where):
        metrics = _validated(connection, trial_id, {found.record.steps_completed for found in checkpoints})
        for found in reversed(checkpoints):
            validated = metrics[found.attempt, found.record.steps_completed]
            rows.append(_checkpoint_row(home, trial_id, experiment_id, found, validated))
    return rows


def _validated(
    connection: sqlite3.Connection, trial_id: int, steps: Collection[int]
) -> defaultdict[tuple[int, int], dict[str, Metric]]:
    """Returns the validation metrics of a trial at some steps, by attempt and step."""
    query = f"""SELECT attempt.attempt, series.name, block.steps, block.numbers FROM {BLOCKS}
        WHERE attempt.trial_id = ? AND series.is_shown AND {IS_METRIC} AND series.group_name = 'validation'
        AND EXISTS (SELECT 1 FROM json_each(?) WHERE value BETWEEN block.first_steps AND block.last_steps)
        ORDER BY series.is_repeated DESC, series.id, block.last_steps, block.last_order"""
    validated: defaultdict[tuple[int, int], dict[str, Metric]] = defaultdict(dict)
    values = trial_id, msgspec.json.encode(list(steps)).decode()
    for attempt, name, block_steps, numbers in connection.execute(query, values):
        for step, value in zip(unpack_steps(block_steps), unpack_values(numbers), strict=True):
            if step in steps:
                validated[attempt, step][name] = value
    return validated


def latest_checkpoints(connection: sqlite3.Connection, home: Home, where: Where) -> dict[int, str]:
    """Returns, by trial, the storage id of the newest checkpoint that exists, is whole and is not superseded."""
    latest = {}
    for (trial_id, _), checkpoints in _folded(connection, where):
        for found in reversed(checkpoints):
            is_out = found.is_deleted or found.is_partial or found.is_superseded
            if not is_out and _may_exist(_storage(home.home_of(trial_id), found.record), found.record.storage_id):
                latest[trial_id] = found.record.storage_id
                break
    return latest


def _folded(connection: sqlite3.Connection, where: Where) -> Iterator[tuple[tuple[int, int], list[RecordedCheckpoint]]]:
    """Yields the checkpoints of each trial, the newest trial first. Journals give the order, not clocks.

    The first element of each pair is the trial's id and its experiment's id.
    """
    # One trial may delete another's checkpoint, so records are found by the checkpoint's id.
    query = f"""
        SELECT trial_id, experiment_id, attempt, record FROM {_RECORDS} WHERE storage_id IN (
            SELECT storage_id FROM {_RECORDS} WHERE {where.sql}
        ) ORDER BY attempt = 0, trial_id, attempt, position"""
    folds: dict[tuple[int, int], CheckpointFold] = {}
    fold_of: dict[str, CheckpointFold] = {}
    others = []
    for trial_id, experiment_id, attempt, text in connection.execute(query, where.values):
        record = _decode(text)
        if isinstance(record, CheckpointStored):
            fold = folds.setdefault((trial_id, experiment_id), CheckpointFold())
            fold_of[record.storage_id] = fold
            fold.take(record, attempt)
        else:
            others.append((record, attempt))
    for record, attempt in others:
        if record.storage_id in fold_of:
            fold_of[record.storage_id].take(record, attempt)
    resumed_steps = _of_attempts(connection, {trial_id for trial_id, _ in folds}, "resumed_steps")
    good_until = _of_attempts(connection, {trial_id for trial_id, _ in folds}, "good_until")
    for (trial_id, experiment_id), fold in sorted(folds.items(), key=lambda item: item[0], reverse=True):
        fold.good_until |= {attempt: step for attempt, step in good_until[trial_id].items() if step is not None}
        yield (trial_id, experiment_id), fold.checkpoints(resumed_steps[trial_id])


def _of_attempts(
    connection: sqlite3.Connection, trial_ids: Collection[int], column: Literal["resumed_steps", "good_until"]
) -> defaultdict[int, dict[int, int | None]]:
    """Returns a step of each attempt, by trial and attempt."""
    found: defaultdict[int, dict[int, int | None]] = defaultdict(dict)
    where = among("trial_id", trial_ids)
    query = f"SELECT trial_id, attempt, {column} FROM attempt WHERE attempt > 0 AND rank = 0 AND {where.sql}"
    for trial_id, attempt, steps in connection.execute(query, where.values):
        found[trial_id][attempt] = steps
    return found


def _checkpoint_row(
    home: Home, trial_id: int, experiment_id: int, found: RecordedCheckpoint, metrics: dict[str, Metric]
) -> CheckpointRow:
    storage = _storage(home.home_of(trial_id), found.record)
    is_missing = not found.is_deleted and not _may_exist(storage, found.record.storage_id)
    state: CheckpointState = "PARTIALLY_DELETED" if found.is_partial else "COMPLETED"
    told: dict[str, Any] = {name: getattr(found.record, name) for name in OF_CHECKPOINT}
    told |= {"storage": storage, "metadata": from_json(found.metadata), "resources": found.resources}
    return CheckpointRow(
        **told,
        trial_id=trial_id,
        experiment_id=experiment_id,
        attempt=found.attempt,
        state="DELETED" if found.is_deleted or is_missing else state,
        size_bytes=sum(found.resources.values()),
        is_pinned=found.pin is not None,
        pin_note=found.pin.note if found.pin else "",
        is_missing=is_missing,
        is_in_trouble=found.is_in_trouble,
        metrics=metrics,
    )


def _storage(home: Home, checkpoint: CheckpointStored) -> str:
    return storage_url(home, checkpoint.storage, checkpoint.storage_id)


def _may_exist(storage: str, storage_id: str) -> bool:
    """Returns whether the files may be there: directories are looked at, buckets are not asked."""
    url = urlsplit(storage)
    with contextlib.suppress(PermissionError):  # somebody else's: they may be there
        return url.scheme != "file" or Path(unquote(url.path), storage_id, MANIFEST_NAME).exists()
    return True
