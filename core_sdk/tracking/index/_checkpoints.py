"""Questions about checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import sqlalchemy as sa

from core_sdk.records import (
    CheckpointMetadataSet,
    CheckpointPinned,
    CheckpointPruned,
    CheckpointUnpinned,
    from_json,
)
from core_sdk.storage import MANIFEST_NAME
from core_sdk.tracking.index._schema import attempt, checkpoint, checkpoint_change, checkpoint_deleted, trial
from core_sdk.tracking.rows import CheckpointRow

_Change = CheckpointPruned | CheckpointPinned | CheckpointUnpinned | CheckpointMetadataSet

_is_deleted = sa.exists().where(checkpoint_deleted.c.storage_id == checkpoint.c.storage_id)
_is_pruned = sa.exists().where(
    checkpoint_change.c.storage_id == checkpoint.c.storage_id, checkpoint_change.c.is_pruning
)
_later = attempt.alias()
_is_superseded = sa.exists().where(
    _later.c.trial_id == attempt.c.trial_id,
    _later.c.attempt > attempt.c.attempt,
    _later.c.resumed_steps < checkpoint.c.steps_completed,
)
_source = checkpoint.join(attempt, attempt.c.id == checkpoint.c.attempt_id)


# By the order of the journals: the clocks of two trials need not agree.
NEWEST_FIRST = (attempt.c.trial_id.desc(), attempt.c.attempt.desc(), checkpoint.c.position.desc())


def read_checkpoints(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[CheckpointRow]:
    """Those of the newest trial first, and the newest of each trial first."""
    query = (
        sa.select(
            checkpoint, attempt.c.trial_id, attempt.c.attempt, trial.c.experiment_id, _is_deleted.label("deleted")
        )
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where)
        .order_by(*NEWEST_FIRST)
    )
    changes = _changes(connection, where)
    return [_changed(_checkpoint_row(row), changes[row.storage_id]) for row in connection.execute(query)]


def latest_checkpoints(connection: sa.Connection, where: sa.ColumnElement[bool]) -> dict[int, str]:
    """For each trial, the newest checkpoint that still exists, whole, and that no attempt went back behind."""
    query = (
        sa.select(attempt.c.trial_id, checkpoint.c.storage, checkpoint.c.storage_id)
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where, ~_is_deleted, ~_is_pruned, ~_is_superseded)
        .order_by(*NEWEST_FIRST)
    )
    latest: dict[int, str] = {}
    for row in connection.execute(query).all():
        if row.trial_id not in latest and _may_exist(row.storage, row.storage_id):
            latest[row.trial_id] = row.storage_id
    return latest


def _changes(connection: sa.Connection, where: sa.ColumnElement[bool]) -> defaultdict[str, list[_Change]]:
    """By storage id, in the order of each journal."""
    meant = (
        sa.select(checkpoint.c.storage_id)
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where)
    )
    query = (
        sa.select(checkpoint_change.c.storage_id, checkpoint_change.c.record)
        .where(checkpoint_change.c.storage_id.in_(meant))
        .order_by(checkpoint_change.c.attempt_id, checkpoint_change.c.position)
    )
    changes: defaultdict[str, list[_Change]] = defaultdict(list)
    for storage_id, record in connection.execute(query):
        changes[storage_id].append(msgspec.json.decode(record, type=_Change))
    return changes


def _changed(row: CheckpointRow, changes: Iterable[_Change]) -> CheckpointRow:
    for change in changes:
        match change:
            case CheckpointPinned():
                row = replace(row, is_pinned=True, pin_note=change.note)
            case CheckpointUnpinned():
                row = replace(row, is_pinned=False, pin_note="")
            case CheckpointMetadataSet():
                kept = {key: value for key, value in row.metadata.items() if key not in change.removed}
                row = replace(row, metadata=kept | from_json(change.metadata))
            case CheckpointPruned():
                row = _pruned(row, change)
    return row


def _pruned(row: CheckpointRow, change: CheckpointPruned) -> CheckpointRow:
    # Files only ever go: what two journals say needs no order.
    resources = {name: size for name, size in row.resources.items() if name in change.resources}
    state = row.state if row.state == "DELETED" else "PARTIALLY_DELETED"
    return replace(row, state=state, resources=resources, size_bytes=sum(resources.values()))


def _checkpoint_row(row: Any) -> CheckpointRow:
    resources = msgspec.json.decode(row.resources, type=dict[str, int])
    is_missing = not row.deleted and not _may_exist(row.storage, row.storage_id)
    return CheckpointRow(
        storage_id=row.storage_id,
        trial_id=row.trial_id,
        experiment_id=row.experiment_id,
        attempt=row.attempt,
        steps_completed=row.steps_completed,
        state="DELETED" if row.deleted or is_missing else "COMPLETED",
        time=row.time,
        size_bytes=sum(resources.values()),
        storage=row.storage,
        metadata=from_json(msgspec.json.decode(row.metadata)),
        resources=resources,
        is_missing=is_missing,
    )


def _may_exist(storage: str, storage_id: str) -> bool:
    """Whether the files are there, as far as a look at a directory can tell: buckets are not asked."""
    url = urlsplit(storage)
    return url.scheme != "file" or Path(unquote(url.path), storage_id, MANIFEST_NAME).exists()
