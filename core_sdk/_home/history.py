"""The checkpoints of a trial as its journals tell them, without a database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec.structs import replace

from core_sdk._ground.records import (
    AttemptStarted,
    CheckpointBegun,
    CheckpointStored,
    Dropped,
    Metric,
    Record,
    Report,
    SearcherMetric,
    Source,
    TroubleFound,
    metrics_from_json,
)
from core_sdk._home.checkpoints import CheckpointFold, RecordedCheckpoint
from core_sdk._home.folders import Home, Ownership, TrialFolder
from core_sdk._home.journal import find_records
from core_sdk._home.storages import is_inside, storage_url
from core_sdk.errors import CheckpointNotFoundError

_VALIDATION = "validation"
_WANTED = ('"attempt"', '"checkpoint', '"dropped"', '"trouble"')


class UnlistedCheckpoint(msgspec.Struct, frozen=True):
    """Files that may be in a storage although no checkpoint of this name exists."""

    attempt: int
    storage_id: str
    storage: str
    is_condemned: bool
    """True if its deletion was interrupted, False if its save was."""
    is_inherited: bool = False
    """See `RecordedCheckpoint.is_inherited`."""


class TrialHistory(msgspec.Struct, frozen=True):
    checkpoints: tuple[RecordedCheckpoint, ...]
    """The checkpoints that were not deleted, in the order in which they were stored."""
    unlisted: tuple[UnlistedCheckpoint, ...]
    problem: str | None
    """The reason why records may be missing; None if all were read."""
    troubles: tuple[tuple[int, TroubleFound], ...] = ()
    """What guards have found, in each attempt."""
    gone: frozenset[str] = frozenset()
    """The checkpoints that were deleted, or whose deletion has begun."""
    validation_metrics: frozenset[str] = frozenset()
    """The names of all validation metrics, where `read_history` was asked for them."""

    def as_own(self) -> TrialHistory:
        """Returns the same history with no checkpoint inherited, for a home whose original is gone."""
        return replace(
            self,
            checkpoints=tuple(replace(each, is_inherited=False) for each in self.checkpoints),
            unlisted=tuple(replace(each, is_inherited=False) for each in self.unlisted),
        )


def read_history(
    folder: TrialFolder, *, with_validation: bool = False, metric: SearcherMetric | None = None
) -> TrialHistory:
    """Reads the trial's journals. `metric` is the one that decides, which may be a writer's."""
    reading = _JournalReading(Home(folder.home_root), with_validation, metric)
    for attempt in folder.attempts():
        reading.read(folder.journal_path(attempt), attempt)
    for attempt, rank in folder.other_journals() if with_validation else ():
        reading.read(folder.journal_path(attempt, rank), attempt, rank)
    reading.read(folder.changes_path, attempt=0)
    return reading.history()


def check_listed(folder: TrialFolder, storage_id: str) -> None:
    """Raises `CheckpointNotFoundError` if the trial has no such checkpoint, or its deletion has begun."""
    if all(found.record.storage_id != storage_id for found in read_history(folder).checkpoints):
        raise CheckpointNotFoundError(storage_id, f"trial {folder.trial_id}: it was deleted")


class _JournalReading:
    """The records of one trial's journals that were read so far."""

    def __init__(self, home: Home, with_validation: bool, metric: SearcherMetric | None) -> None:
        self._home = home
        self._with_validation = with_validation
        self._metric = metric
        self._wanted = (*_WANTED, f'"{_VALIDATION}"') if with_validation else _WANTED
        self._fold = CheckpointFold()
        self._begun: dict[str, tuple[int, CheckpointBegun]] = {}
        self._validations: defaultdict[tuple[int, int], dict[str, Metric]] = defaultdict(dict)
        self._validated_by: dict[tuple[int, str], Source] = {}
        self._began: float | None = None
        """The time at which the first attempt began."""
        self._resumed_steps: dict[int, int | None] = {}
        self._ran_in: dict[int, str] = {}
        self._is_inside: dict[str, bool] = {}
        self._problem: str | None = None
        self._troubles: list[tuple[int, TroubleFound]] = []

    def read(self, path: Path, attempt: int, rank: Source = 0) -> None:
        """Reads one journal. The journals of an attempt must be read in the order of their ranks, writers last."""
        for found in find_records(path, self._wanted):
            try:
                if isinstance(found, ValueError):
                    raise found
                self._take(found, attempt, rank)
            except ValueError as error:
                self._problem = f"a line of {path.name} {error}"

    def _take(self, record: Record, attempt: int, rank: Source) -> None:
        match record:
            case Report():
                if self._with_validation and record.group == _VALIDATION:
                    self._take_validation(record, attempt, rank)
            case Dropped():
                self._problem = f"{record.count} records of attempt {attempt} could not be written"
            case _ if rank != 0:
                pass  # only rank 0 tells of the attempt
            case AttemptStarted():
                self._began = record.time if self._began is None else self._began
                self._resumed_steps[attempt] = record.resumed_steps
                self._ran_in[attempt] = record.home
            case CheckpointBegun():
                self._begun[record.storage_id] = attempt, record
            case _:
                self._fold.take(record, attempt)
                if isinstance(record, TroubleFound):
                    self._troubles.append((attempt, record))

    def _take_validation(self, report: Report, attempt: int, rank: Source) -> None:
        """Keeps the values of each metric from the lowest rank that has reported it in this attempt.

        Of the metric that decides, it keeps those of its writer, if one is named.
        """
        for name, value in metrics_from_json(report.metrics).items():
            writer = self._metric.writer if self._metric is not None and self._metric.name == name else None
            if self._validated_by.setdefault((attempt, name), writer or rank) == rank:
                self._validations[attempt, report.steps_completed][name] = value

    def history(self) -> TrialHistory:
        return TrialHistory(
            checkpoints=tuple(
                self._seen_from_here(found)
                for found in self._fold.checkpoints(self._resumed_steps)
                if not found.is_deleted
            ),
            unlisted=tuple(self._unlisted()),
            problem=self._problem,
            troubles=tuple(self._troubles),
            gone=frozenset(self._fold.condemned | self._fold.deleted),
            validation_metrics=frozenset().union(*self._validations.values()),
        )

    def _seen_from_here(self, found: RecordedCheckpoint) -> RecordedCheckpoint:
        url = storage_url(self._home, found.record.storage, found.record.storage_id)
        return replace(
            found,
            record=replace(found.record, storage=url),
            is_inherited=self._is_inherited(url, found.attempt),
            hours=0.0 if self._began is None else (found.record.time - self._began) / 3600,
            validation=self._validations.get((found.attempt, found.record.steps_completed), {}),
        )

    def _is_inherited(self, url: str, attempt: int) -> bool:
        if url not in self._is_inside:
            self._is_inside[url] = is_inside(self._home, url)
        return not self._is_inside[url] and not self._ownership.covers(self._ran_in.get(attempt, ""))

    @cached_property
    def _ownership(self) -> Ownership:
        return self._home.ownership()

    def _unlisted(self) -> Iterator[UnlistedCheckpoint]:
        stored = {record.storage_id: (attempt, record) for attempt, record in self._fold.stored}
        known: dict[str, tuple[int, CheckpointBegun | CheckpointStored]] = {**self._begun, **stored}
        for storage_id, (attempt, record) in known.items():
            is_condemned = storage_id in self._fold.condemned
            if storage_id not in self._fold.deleted and (is_condemned or storage_id not in stored):
                url = storage_url(self._home, record.storage, storage_id)
                yield UnlistedCheckpoint(attempt, storage_id, url, is_condemned, self._is_inherited(url, attempt))
