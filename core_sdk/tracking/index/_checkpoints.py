"""Questions about checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import sqlalchemy as sa

from core_sdk.records import from_json
from core_sdk.tracking.index._schema import attempt, checkpoint, checkpoint_deleted, trial
from core_sdk.tracking.rows import CheckpointRow

_MANIFEST = ".manifest.json"

_is_deleted = sa.exists().where(checkpoint_deleted.c.storage_id == checkpoint.c.storage_id)
_source = checkpoint.join(attempt, attempt.c.id == checkpoint.c.attempt_id)


def read_checkpoints(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[CheckpointRow]:
    """Newest first: by time across trials, by the order of their journals within one."""
    query = (
        sa.select(
            checkpoint, attempt.c.trial_id, attempt.c.attempt, trial.c.experiment_id, _is_deleted.label("deleted")
        )
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where)
        .order_by(checkpoint.c.time.desc(), attempt.c.attempt.desc(), checkpoint.c.position.desc())
    )
    return [_checkpoint_row(row) for row in connection.execute(query)]


def latest_checkpoints(connection: sa.Connection, where: sa.ColumnElement[bool]) -> dict[int, str]:
    """For each trial, the newest checkpoint that still exists."""
    query = (
        sa.select(attempt.c.trial_id, checkpoint.c.storage, checkpoint.c.storage_id)
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where, ~_is_deleted)
        .order_by(attempt.c.attempt.desc(), checkpoint.c.position.desc())
    )
    latest: dict[int, str] = {}
    for row in connection.execute(query).all():
        if row.trial_id not in latest and _may_exist(row.storage, row.storage_id):
            latest[row.trial_id] = row.storage_id
    return latest


def _checkpoint_row(row: Any) -> CheckpointRow:
    resources = msgspec.json.decode(row.resources, type=dict[str, int])
    return CheckpointRow(
        storage_id=row.storage_id,
        trial_id=row.trial_id,
        experiment_id=row.experiment_id,
        attempt=row.attempt,
        steps_completed=row.steps_completed,
        state="DELETED" if row.deleted or not _may_exist(row.storage, row.storage_id) else "COMPLETED",
        time=row.time,
        size_bytes=sum(resources.values()),
        storage=row.storage,
        metadata=from_json(msgspec.json.decode(row.metadata)),
        resources=resources,
    )


def _may_exist(storage: str, storage_id: str) -> bool:
    """Whether the files are there, as far as a look at a directory can tell: buckets are not asked."""
    url = urlsplit(storage)
    return url.scheme != "file" or Path(unquote(url.path), storage_id, _MANIFEST).exists()
