"""Questions about checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import sqlalchemy as sa

from core_sdk.records import from_json
from core_sdk.storage import MANIFEST_NAME
from core_sdk.tracking.index._schema import attempt, checkpoint, checkpoint_deleted, trial
from core_sdk.tracking.rows import CheckpointRow

_is_deleted = sa.exists().where(checkpoint_deleted.c.storage_id == checkpoint.c.storage_id)
_later = attempt.alias()
_is_superseded = sa.exists().where(
    _later.c.trial_id == attempt.c.trial_id,
    _later.c.attempt > attempt.c.attempt,
    _later.c.resumed_steps < checkpoint.c.steps_completed,
)
_source = checkpoint.join(attempt, attempt.c.id == checkpoint.c.attempt_id)


# Within one trial the journals tell the order; between trials there are only their clocks.
IN_TRIAL = (attempt.c.attempt.desc(), checkpoint.c.position.desc())
BETWEEN_TRIALS = (checkpoint.c.time.desc(), attempt.c.trial_id.desc(), *IN_TRIAL)


def read_checkpoints(
    connection: sa.Connection,
    where: sa.ColumnElement[bool],
    newest_first: Sequence[sa.ColumnElement[Any]] = BETWEEN_TRIALS,
) -> list[CheckpointRow]:
    query = (
        sa.select(
            checkpoint, attempt.c.trial_id, attempt.c.attempt, trial.c.experiment_id, _is_deleted.label("deleted")
        )
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where)
        .order_by(*newest_first)
    )
    return [_checkpoint_row(row) for row in connection.execute(query)]


def latest_checkpoints(connection: sa.Connection, where: sa.ColumnElement[bool]) -> dict[int, str]:
    """For each trial, the newest checkpoint that still exists and that no attempt went back behind."""
    query = (
        sa.select(attempt.c.trial_id, checkpoint.c.storage, checkpoint.c.storage_id)
        .select_from(_source.join(trial, trial.c.trial_id == attempt.c.trial_id))
        .where(where, ~_is_deleted, ~_is_superseded)
        .order_by(*IN_TRIAL)
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
    return url.scheme != "file" or Path(unquote(url.path), storage_id, MANIFEST_NAME).exists()
