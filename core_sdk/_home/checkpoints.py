"""The state of a trial's checkpoints, folded from the records about them.

The index, the history of a trial and the collection of checkpoints all see checkpoints as this fold leaves them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import field

from core_sdk._ground.records import (
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointMetadataSet,
    CheckpointPinned,
    CheckpointPruned,
    CheckpointStored,
    CheckpointUnpinned,
    KeepEvery,
    Metric,
    Record,
    TroubleFound,
)
from core_sdk._home.superseding import EVERYTHING, kept_until

CheckpointRecord = (
    CheckpointStored
    | CheckpointCondemned
    | CheckpointDeleted
    | CheckpointPruned
    | CheckpointPinned
    | CheckpointUnpinned
    | CheckpointMetadataSet
)


class RecordedCheckpoint(msgspec.Struct, frozen=True):
    attempt: int
    record: CheckpointStored
    resources: dict[str, int]
    """The files that are left, with their sizes in bytes."""
    metadata: dict[str, Any]
    """The metadata that was stored with it, with later changes, as the journal spells it."""
    is_superseded: bool
    """A later attempt resumed from an earlier step, or the training was in trouble."""
    is_in_trouble: bool = False
    """It was stored after its attempt had got into the trouble that a guard has found."""
    is_deleted: bool = False
    is_partial: bool = False
    """Some of its files were deleted."""
    pin: CheckpointPinned | None = None
    is_inherited: bool = False
    """It lies outside the home, and was not stored by this home: it may be its original's. See `tracking.storages`."""
    hours: float = 0.0
    """The time from the beginning of the trial until it was stored, as `read_history` tells it."""
    validation: dict[str, Metric] = field(default_factory=dict)
    """The validation metrics of the same attempt at its step, if `read_history` was called with `with_validation`."""


def kept_for_ever(checkpoints: Iterable[RecordedCheckpoint], every: KeepEvery) -> dict[str, str]:
    """Returns the reasons for which `every` keeps checkpoints of a trial, by storage id. Superseded ones are not kept.

    `checkpoints` are in the order in which they were stored.
    """
    standing = [each for each in checkpoints if not each.is_superseded]
    return every.firsts((each.record.storage_id, each.record.steps_completed, each.hours) for each in standing)


class CheckpointFold:
    """Takes the records of one trial, attempt by attempt and then its changes, in the order of their lines."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, CheckpointStored]] = []
        self.condemned: set[str] = set()
        self.deleted: set[str] = set()
        self._left: dict[str, dict[str, int]] = {}
        self.good_until: dict[int, int] = {}
        """The last step at which all was well, of attempts that got into trouble."""
        self._pins: dict[str, CheckpointPinned] = {}
        self._metadata_changes: defaultdict[str, list[CheckpointMetadataSet]] = defaultdict(list)

    def take(self, record: Record, attempt: int) -> None:
        """Adds a record; records about anything else are ignored."""
        match record:
            case CheckpointStored():
                self.stored.append((attempt, record))
            case TroubleFound() if record.spoils:
                self.good_until[attempt] = record.good_until
            case CheckpointCondemned():
                self.condemned.add(record.storage_id)
            case CheckpointDeleted():
                self.deleted.add(record.storage_id)
            case CheckpointPruned():
                # Files only ever go, so that the order of what two journals say does not matter.
                left = self._left.get(record.storage_id, record.resources)
                self._left[record.storage_id] = {name: size for name, size in left.items() if name in record.resources}
            case CheckpointPinned():
                self._pins[record.storage_id] = record
            case CheckpointUnpinned():
                self._pins.pop(record.storage_id, None)
            case CheckpointMetadataSet():
                self._metadata_changes[record.storage_id].append(record)

    def checkpoints(self, resumed_steps: Mapping[int, int | None]) -> list[RecordedCheckpoint]:
        """Returns all checkpoints in the order in which they were stored, deleted ones too.

        `resumed_steps` has the step that each attempt resumed from.
        """
        begun = dict.fromkeys(attempt for attempt, _ in self.stored) | dict(resumed_steps)
        kept, good_until = kept_until(begun), self._all_good_until(begun)
        gone = self.condemned | self.deleted
        return [
            RecordedCheckpoint(
                attempt=attempt,
                record=record,
                resources=self._left.get(record.storage_id, record.resources),
                metadata=self._metadata(record),
                is_superseded=record.steps_completed > min(kept[attempt], good_until[attempt]),
                is_in_trouble=record.steps_completed > good_until[attempt],
                is_deleted=record.storage_id in gone,
                is_partial=record.storage_id in self._left,
                pin=self._pins.get(record.storage_id),
            )
            for attempt, record in self.stored
        ]

    def _all_good_until(self, resumed_steps: Mapping[int, int | None]) -> dict[int, int]:
        """Returns, for each attempt, up to which step its checkpoints are good.

        An attempt may have found that the checkpoint from which it went on was spoiled. That is one of an earlier
        attempt.
        """
        good_until, last = {}, EVERYTHING
        for attempt in sorted(resumed_steps, reverse=True):
            own = self.good_until.get(attempt, EVERYTHING)
            good_until[attempt] = min(own, last)
            if own < (resumed_steps[attempt] or 0):
                last = min(last, own)
        return good_until

    def _metadata(self, record: CheckpointStored) -> dict[str, Any]:
        metadata = record.metadata
        for change in self._metadata_changes.get(record.storage_id, ()):
            kept = {key: value for key, value in metadata.items() if key not in change.removed}
            metadata = kept | change.metadata
        return metadata
