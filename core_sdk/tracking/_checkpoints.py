"""The checkpoints of a trial as its journals tell them, without a database."""

from __future__ import annotations

from dataclasses import dataclass

from core_sdk.journal import read_records
from core_sdk.records import AttemptStarted, CheckpointDeleted, CheckpointStored
from core_sdk.tracking.home import TrialFolder


@dataclass(frozen=True)
class RecordedCheckpoint:
    attempt: int
    record: CheckpointStored
    is_superseded: bool
    """A later attempt went back behind it."""


def recorded_checkpoints(folder: TrialFolder) -> list[RecordedCheckpoint]:
    """All that were stored and not deleted, in the order in which they were stored."""
    stored: list[tuple[int, CheckpointStored]] = []
    deleted: set[str] = set()
    resumed_steps: dict[int, int] = {}
    for attempt in folder.attempts():
        if not folder.journal_path(attempt).exists():
            continue  # started, and ended before the script called init()
        for record in read_records(folder.journal_path(attempt)):
            if isinstance(record, CheckpointStored):
                stored.append((attempt, record))
            elif isinstance(record, CheckpointDeleted):
                deleted.add(record.storage_id)
            elif isinstance(record, AttemptStarted):
                resumed_steps[attempt] = record.resumed_steps
    if folder.changes_path.exists():
        deleted |= {
            record.storage_id for record in read_records(folder.changes_path) if isinstance(record, CheckpointDeleted)
        }
    return [
        RecordedCheckpoint(attempt, record, _is_superseded(attempt, record.steps_completed, resumed_steps))
        for attempt, record in stored
        if record.storage_id not in deleted
    ]


def _is_superseded(attempt: int, steps_completed: int, resumed_steps: dict[int, int]) -> bool:
    return any(later > attempt and steps < steps_completed for later, steps in resumed_steps.items())
