"""What the index answers: plain values, one class per kind of row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from core_sdk.records import Metric

TrialState = Literal["ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR"]
"""PAUSED: stopped on request, to be continued. CANCELED: interrupted by Ctrl-C. ERROR: it raised, or its process failed
or died without a word."""

CheckpointState = Literal["COMPLETED", "PARTIALLY_DELETED", "DELETED"]


@dataclass(frozen=True)
class ExperimentRow:
    experiment_id: int
    name: str
    created: float
    """Seconds since the Unix epoch, as all times here."""
    labels: tuple[str, ...]
    description: str
    num_trials: int
    state: TrialState
    """ACTIVE while any trial is; else PAUSED, ERROR, CANCELED, COMPLETED, whichever, in this order, any trial is in."""


@dataclass(frozen=True)
class RankRow:
    """One rank of a trial's newest attempt."""

    rank: int
    host: str
    progress: float | None


@dataclass(frozen=True)
class TrialRow:
    trial_id: int
    experiment_id: int
    experiment_name: str
    state: TrialState
    reason: str
    """Why the state is what it is: the error's last line, "killed by SIGKILL", what asked for the stop; else empty."""
    hparams: dict[str, Any]
    created: float
    ended: float | None
    num_attempts: int
    steps_completed: int
    """The highest step of any report that is not superseded."""
    progress: float | None
    """The chief's."""
    status: str
    metadata: dict[str, Any] | None
    latest_checkpoint: str | None
    continued_from: str | None
    num_dropped: int
    """Records that the disk refused."""
    num_bad_lines: int
    ranks: tuple[RankRow, ...]
    """Those that have recorded something in the newest attempt, if others than the chief have."""


@dataclass(frozen=True)
class ReportRow:
    trial_id: int
    attempt: int
    group: str
    steps_completed: int | None
    """None for the profiler's groups, which belong to a time only."""
    time: float
    metrics: dict[str, Any]
    """Numbers; in generic groups also JSON values."""
    batch_metrics: list[dict[str, Metric]] | None = None
    is_superseded: bool = False
    rank: int = 0
    """Who reported; the profiler's figures are those of its node."""


@dataclass(frozen=True)
class SeriesRow:
    """One metric of a trial, over its attempts."""

    group: str
    name: str
    count: int
    first_steps: int
    last_steps: int


@dataclass(frozen=True)
class Bucket:
    """A stretch of a series, as a chart draws it: nothing between its true minimum and maximum is lost."""

    first_steps: int
    last_steps: int
    count: int
    num_nan: int
    minimum: Metric | None
    """None if every value is NaN."""
    maximum: Metric | None
    mean: float | None


@dataclass(frozen=True)
class CheckpointRow:
    storage_id: str
    trial_id: int
    experiment_id: int
    attempt: int
    steps_completed: int
    state: CheckpointState
    time: float
    size_bytes: int
    storage: str
    """The storage's URL."""
    metadata: dict[str, Any]
    """As the tracker has it: what was stored, and what was added or taken away since."""
    resources: dict[str, int]
    is_pinned: bool = False
    pin_note: str = ""
    is_missing: bool = False
    """Its files are not there, and nothing says that they were deleted."""
