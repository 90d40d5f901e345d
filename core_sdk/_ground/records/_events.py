"""The lines of `<home>/experiments/<id>/events.journal`, from which an experiment's state is computed."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from core_sdk._ground.records._values import Int64, Line, Source

Wish = Literal["ACTIVE", "PAUSED", "CANCELED", "KILLED"]
"""The states that users can ask for. For a trial they can ask for the last two."""

FinalState = Literal["COMPLETED", "CANCELED", "ERROR"]

AttemptOutcome = Literal["completed", "paused", "canceled", "invalid_hp", "failed", "hopeless", "lost"]
"""Failed attempts count as restarts; hopeless ones are not repeated; lost ones are repeated and do not count."""


class ExperimentBegun(Line, tag="experiment_begun"):
    """The first line of every journal of events."""

    format: int
    is_paused: bool = False


class ExperimentWanted(Line, tag="experiment_wanted"):
    """Somebody paused, activated, canceled or killed the experiment."""

    state: Wish
    by: str = ""


class ExperimentContinued(Line, tag="experiment_continued"):
    """An experiment that had ended is continued: its trials that were not completed go on."""

    by: str = ""


class TrialWanted(Line, tag="trial_wanted"):
    """Somebody canceled or killed one trial."""

    request_id: UUID
    state: Literal["CANCELED", "KILLED"]
    by: str = ""


class SettingsChanged(Line, tag="settings_changed"):
    """Somebody changed settings of the experiment. A setting of None is unchanged."""

    priority: int | None = None
    max_slots: int | None = None
    """-1 means no limit."""
    place: float | None = None
    """Its place among experiments of the same priority."""


class TrialNumbered(Line, tag="trial_created"):
    """The trial of a request has this id; its first attempt is about to begin."""

    request_id: UUID
    trial_id: Int64


class AttemptBegun(Line, tag="attempt_begun"):
    """The attempt is about to be started."""

    request_id: UUID
    attempt: int
    slots: list[int]
    boot: str
    """The id of the machine's boot, or of the node in a cluster. An attempt cannot outlive it."""


class ValidationRead(Line, tag="validation_read"):
    """A validation report that was found in the attempt's journal."""

    request_id: UUID
    attempt: int
    offset: Int64
    """The offset in the journal at which reading continues."""
    metric: Any = None
    """The searcher's metric, as `to_json` returns it; None if the report does not have it."""
    length: int | float | None = None
    """The time metric, or the length of the searcher operation that was completed."""
    is_operation: bool = False
    """Whether this is the end of a searcher operation."""
    names: list[str] = []
    """The names of the reported metrics, if something that the searcher needs is missing."""
    rank: Source = 0
    """The rank or the writer that has reported it, in whose journal the offset is."""


class StopSent(Line, tag="stop_sent"):
    """The attempt is about to be asked to stop."""

    request_id: UUID
    attempt: int
    reason: str
    kill_at: float
    """The time at which it will be killed, for people. The master itself uses a clock that does not jump."""


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
    last_words: str = ""
    """The last line of its output, if it has failed before its script called `init()`."""
    is_another_begun: bool = True
    """Whether another attempt of the experiment runs whose script has called `init()`."""


class OperationsPosted(Line, tag="operations_posted"):
    """The operations of a search method outside of the master. They count only if `num_events` has grown."""

    num_events: int
    """The number of its events that the method has answered with this post and earlier ones."""
    operations: list[dict[str, Any]]


class ExperimentEnded(Line, tag="experiment_ended"):
    """The experiment has ended: no trial runs, and none will be started."""

    state: FinalState
    reason: str = ""


Event = (
    ExperimentBegun
    | ExperimentWanted
    | ExperimentContinued
    | TrialWanted
    | SettingsChanged
    | TrialNumbered
    | AttemptBegun
    | ValidationRead
    | StopSent
    | KillSent
    | AttemptOver
    | OperationsPosted
    | ExperimentEnded
)
