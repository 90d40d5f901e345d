"""The checkpoints of a trial as its journals tell them, without a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core_sdk.journal import find_records
from core_sdk.records import (
    AttemptStarted,
    CheckpointBegun,
    CheckpointStored,
    Dropped,
    Metric,
    Record,
    Report,
    metrics_from_json,
)
from core_sdk.tracking.checkpoints import CheckpointFold, RecordedCheckpoint
from core_sdk.tracking.home import TrialFolder

_VALIDATION = "validation"
_WANTED = ('"attempt"', '"checkpoint', '"dropped"')


@dataclass(frozen=True)
class UnlistedCheckpoint:
    """Files that may be in a storage although no checkpoint of this name exists."""

    attempt: int
    storage_id: str
    storage: str
    is_condemned: bool
    """True if its deletion was interrupted, False if its save was."""


@dataclass(frozen=True)
class TrialHistory:
    checkpoints: tuple[RecordedCheckpoint, ...]
    """Those that were stored and not deleted, in the order in which they were stored."""
    unlisted: tuple[UnlistedCheckpoint, ...]
    problem: str | None
    """Why records may be missing; None if all were read."""
    validation_metrics: frozenset[str] = frozenset()
    """The names of all validation metrics, where `read_history` was asked for them."""


def read_history(folder: TrialFolder, *, with_validation: bool = False) -> TrialHistory:
    reading = _Reading(with_validation)
    for attempt in folder.attempts():
        reading.read(folder.journal_path(attempt), attempt)
    reading.read(folder.changes_path, attempt=0)
    return reading.history()


class _Reading:
    """What the journals of one trial have told so far."""

    def __init__(self, with_validation: bool) -> None:
        self._with_validation = with_validation
        self._wanted = (*_WANTED, f'"{_VALIDATION}"') if with_validation else _WANTED
        self._fold = CheckpointFold()
        self._begun: dict[str, tuple[int, CheckpointBegun]] = {}
        self._validations: defaultdict[tuple[int, int], dict[str, Metric]] = defaultdict(dict)
        self._resumed_steps: dict[int, int | None] = {}
        self._problem: str | None = None

    def read(self, path: Path, attempt: int) -> None:
        for found in find_records(path, self._wanted):
            try:
                if isinstance(found, ValueError):
                    raise found
                self._take(found, attempt)
            except ValueError as error:
                self._problem = f"a line of {path.name} {error}"

    def _take(self, record: Record, attempt: int) -> None:
        match record:
            case Report():
                if self._with_validation and record.group == _VALIDATION:
                    metrics = metrics_from_json(record.metrics)
                    self._validations[attempt, record.steps_completed].update(metrics)
            case AttemptStarted():
                self._resumed_steps[attempt] = record.resumed_steps
            case CheckpointBegun():
                self._begun[record.storage_id] = attempt, record
            case Dropped():
                self._problem = f"{record.count} records of attempt {attempt} could not be written"
            case _:
                self._fold.take(record, attempt)

    def history(self) -> TrialHistory:
        return TrialHistory(
            checkpoints=tuple(
                replace(found, validation=self._validations.get((found.attempt, found.record.steps_completed), {}))
                for found in self._fold.checkpoints(self._resumed_steps)
                if not found.is_deleted
            ),
            unlisted=tuple(self._unlisted()),
            problem=self._problem,
            validation_metrics=frozenset().union(*self._validations.values()),
        )

    def _unlisted(self) -> Iterator[UnlistedCheckpoint]:
        stored = {record.storage_id: (attempt, record) for attempt, record in self._fold.stored}
        known: dict[str, tuple[int, CheckpointBegun | CheckpointStored]] = {**self._begun, **stored}
        for storage_id, (attempt, record) in known.items():
            is_condemned = storage_id in self._fold.condemned
            if storage_id not in self._fold.deleted and (is_condemned or storage_id not in stored):
                yield UnlistedCheckpoint(attempt, storage_id, record.storage, is_condemned)
