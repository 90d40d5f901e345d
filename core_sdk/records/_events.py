"""The lines of `<home>/experiments/<id>/events.journal`, from which an experiment's state is computed."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from core_sdk.records._values import Int64, Line

Wish = Literal["ACTIVE", "PAUSED", "CANCELED", "KILLED"]
"""What users ask of an experiment. Of a trial they can ask the last two."""

FinalState = Literal["COMPLETED", "CANCELED", "ERROR"]

AttemptOutcome = Literal["completed", "paused", "canceled", "invalid_hp", "failed", "hopeless", "lost"]
"""Failed attempts count as restarts; hopeless ones are not repeated; lost ones are repeated and do not count."""


class ExperimentBegun(Line, tag="experiment_begun"):
    """The first line."""

    format: int
    is_paused: bool = False


class ExperimentWanted(Line, tag="experiment_wanted"):
    """Somebody paused, activated, canceled or killed the experiment."""

    state: Wish
    by: str = ""


class ExperimentContinued(Line, tag="experiment_continued"):
    """An experiment that had ended goes on: its trials that were not completed are started again."""

    by: str = ""


class TrialWanted(Line, tag="trial_wanted"):
    """Somebody canceled or killed one trial."""

    request_id: UUID
    state: Literal["CANCELED", "KILLED"]
    by: str = ""


class SettingsChanged(Line, tag="settings_changed"):
    """Settings that can change while the experiment runs; None leaves one as it is."""

    priority: int | None = None
    max_slots: int | None = None
    """-1: no limit."""


class TrialCreated(Line, tag="trial_created"):
    """The trial of a request has this id; its first attempt is about to begin."""

    request_id: UUID
    trial_id: Int64


class AttemptBegun(Line, tag="attempt_begun"):
    """The attempt is about to be started."""

    request_id: UUID
    attempt: int
    slots: list[int]
    boot: str
    """Which start of the machine this was: an attempt cannot outlive it."""


class ValidationRead(Line, tag="validation_read"):
    """A validation report that was found in the attempt's journal."""

    request_id: UUID
    attempt: int
    offset: Int64
    """Where in the journal to read on."""
    metric: Any = None
    """The searcher's metric, as `to_json` spells it; None if the report lacks it."""
    length: int | float | None = None
    """The time metric, or the length of the searcher operation that was completed."""
    is_operation: bool = False
    """Whether this is the end of a searcher operation."""
    names: list[str] = []
    """What was reported, where something is missing."""


class StopSent(Line, tag="stop_sent"):
    """The attempt is about to be asked to stop."""

    request_id: UUID
    attempt: int
    reason: str
    kill_at: float
    """When it will be killed, for people: the master measures the time-out by a clock that does not jump."""


class KillSent(Line, tag="kill_sent"):
    """The attempt is about to be killed."""

    request_id: UUID
    attempt: int
    reason: str


class AttemptOver(Line, tag="attempt_over"):
    """The attempt has ended, and all that it reported was read."""

    request_id: UUID
    attempt: int
    outcome: AttemptOutcome
    reason: str = ""


class OperationsPosted(Line, tag="operations_posted"):
    """What a search method outside of the master wants done. It counts only if `num_events` has grown."""

    num_events: int
    """How many of the events that concern it the method has answered with this and earlier posts."""
    operations: list[dict[str, Any]]


class ExperimentEnded(Line, tag="experiment_ended"):
    """No trial runs any more, and none will be started."""

    state: FinalState
    reason: str = ""


Event = (
    ExperimentBegun
    | ExperimentWanted
    | ExperimentContinued
    | TrialWanted
    | SettingsChanged
    | TrialCreated
    | AttemptBegun
    | ValidationRead
    | StopSent
    | KillSent
    | AttemptOver
    | OperationsPosted
    | ExperimentEnded
)
