"""The events of a search, which say what happens to its trials. Events consist of plain JSON values."""

from __future__ import annotations

import enum
from typing import Any
from uuid import UUID

import msgspec

from core_sdk._ground.records import from_json


class ExitedReason(enum.Enum):
    """The reason for which a trial has ended before its training was complete."""

    ERRORED = "ERRORED"
    USER_CANCELED = "USER_CANCELED"
    INVALID_HP = "INVALID_HP"


class SearchStarted(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag="search_started"):
    """The first event of every search."""


class TrialCreated(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag="trial_created"):
    """The trial that a `Create` asked for now exists."""

    request_id: UUID


class ValidationCompleted(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag="validation_completed"):
    """A trial has reported the searcher's metric, or has completed what a `ValidateAfter` asked for."""

    request_id: UUID
    metric: Any
    """The metric as `records.to_json` returns it; None if the report does not contain it."""
    length: float | None
    """The length to which the trial has trained: the value of the time metric, or the completed length.

    Finite; None if unknown.
    """
    reported: tuple[str, ...] = ()
    """The names of the metrics in the report, if the searcher's metric or its time metric is missing."""

    @property
    def value(self) -> Any:
        """The metric itself."""
        return from_json(self.metric)


class TrialProgressed(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag="trial_progressed"):
    """A trial has reported which fraction of its training is done, from 0 to 1."""

    request_id: UUID
    progress: float


class TrialExitedEarly(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag="trial_exited_early"):
    """A trial has ended without finishing, and will not be started again. `TrialClosed` follows."""

    request_id: UUID
    reason: ExitedReason


class TrialClosed(msgspec.Struct, frozen=True, gc=False, tag_field="event", tag="trial_closed"):
    """A trial has ended, for any reason. This is the last event of the trial."""

    request_id: UUID


Event = SearchStarted | TrialCreated | ValidationCompleted | TrialProgressed | TrialExitedEarly | TrialClosed
