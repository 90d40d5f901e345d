"""The answers of a tracker: plain values, one class per kind of row.

They are structs rather than dataclasses, whose nineteen classes would take a tenth of the time of `core-sdk trial list`
to make, and whose instances take ten times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from core_sdk._ground.records import (
    CodeRecord,
    EarlyExit,
    EnvironmentRecord,
    ExperimentState,
    MediaFile,
    Metric,
    OperationCompleted,
    Report,
    SearchRecord,
    Source,
    StopAcknowledged,
    Time,
    from_json,
    metrics_from_json,
)
from core_sdk._home.fields import Title
from core_sdk._home.time_spent import TrialTime

TrialState = Literal["ACTIVE", "QUEUED", "PAUSED", "COMPLETED", "CANCELED", "ERROR"]
"""QUEUED: it waits for its next job or attempt, and goes on by itself. PAUSED: stopped on request, to be continued.
CANCELED: interrupted by Ctrl-C, canceled or killed. ERROR: it raised, or its process failed or died without a word."""

WhichTrials = Literal["all", "listed", "waiting"]
"""`listed`: the trials that are not archived. `waiting`: those of which it was recorded that their next attempt waits.
They are QUEUED, unless an attempt has begun since or their experiment is paused."""

WriterState = TrialState | Literal["UNKNOWN"]
"""UNKNOWN: the writer's node does not see the home, so that nobody here can tell whether the writer lives."""

CheckpointState = Literal["COMPLETED", "PARTIALLY_DELETED", "DELETED"]


class ExperimentRow(msgspec.Struct, frozen=True, kw_only=True):
    experiment_id: Annotated[int, Title("ID", "id")]
    name: Annotated[str, Title("Name")]
    state: Annotated[ExperimentState, Title("State")]
    """The first of ACTIVE, QUEUED, PAUSED, ERROR, CANCELED and COMPLETED that a trial has, unless `search` says it."""
    num_trials: Annotated[int, Title("Trials", "trials")]
    parent: Annotated[int | None, Title("Parent")] = None
    """The experiment that it was forked from, or that it continues."""
    labels: Annotated[tuple[str, ...], Title("Labels", "label")]
    description: Annotated[str, Title("Description")]
    created: Annotated[Time, Title("Created")]
    """Seconds since the Unix epoch, as all times here."""
    is_archived: Annotated[bool, Title("Archived", "archived")] = False
    search: SearchRecord | None = None
    """The state of a submitted experiment; None for an experiment that is only the name of trials."""
    owner: Annotated[str, Title("Owner")] = ""
    """The owner of the files, where several homes are read as one."""
    home: Annotated[str, Title("Home")] = ""
    """The home that it is read from, likewise."""


class RankRow(msgspec.Struct, frozen=True):
    """A rank of a trial's newest attempt."""

    rank: int
    host: str
    progress: float | None


class WriterRow(msgspec.Struct, frozen=True):
    """A program that reports in addition to the trial's own, as its newest process has left it."""

    name: str
    host: str
    state: WriterState
    reason: str
    """The reason for the state, as in `TrialRow`."""
    started: float
    last_time: float
    """The time of its last record that is here."""


class TrialRow(msgspec.Struct, frozen=True, kw_only=True):
    trial_id: Annotated[int, Title("ID", "id")]
    name: Annotated[str, Title("Name")] = ""
    """The name that somebody has given to it, or else a generated one."""
    experiment_id: Annotated[int, Title("Experiment ID")]
    experiment_name: Annotated[str, Title("Experiment", "experiment")]
    labels: Annotated[tuple[str, ...], Title("Labels", "label")]
    state: Annotated[TrialState, Title("State")]
    reason: Annotated[str, Title("Reason")]
    """The reason for the state: the error's type and first line, "killed by SIGKILL", or who asked to stop; and how
    many records were lost. Empty if there is nothing to say."""
    status: Annotated[str, Title("Status")] = ""
    flops_per_step: Annotated[float | None, Title("FLOPs per step")] = None
    """The floating-point operations of a step, on all ranks together, as far as its script has said or counted them."""
    peak_flops: Annotated[float | None, Title("Peak FLOP/s")] = None
    """The operations that the devices of all ranks together can do in a second."""
    progress: Annotated[float | None, Title("Progress")] = None
    """The chief's."""
    ranks: Annotated[tuple[RankRow, ...], Title("Ranks")]
    """The ranks that have recorded something in the newest attempt; empty if only the chief has."""
    writers: Annotated[tuple[WriterRow, ...], Title("Writers")] = ()
    """The writers, which report in addition to the ranks, by name."""
    steps_completed: Annotated[int, Title("Steps", "steps")]
    """The highest step of any report that is not superseded."""
    num_attempts: Annotated[int, Title("Attempts", "attempts")]
    seed: Annotated[int, Title("Seed", "trial.seed")] = 0
    created: Annotated[Time, Title("Started", "started")]
    ended: Annotated[Time | None, Title("Ended")]
    hparams: Annotated[dict[str, Any], Title("Hyperparameters")]
    metadata: Annotated[dict[str, Any] | None, Title("Metadata")] = None
    latest_checkpoint: Annotated[str | None, Title("Checkpoint", "checkpoint")]
    continued_from: Annotated[str | None, Title("Continued from")]
    fetched_from: Annotated[str, Title("Fetched from")] = ""
    """The trial of a workspace that it goes on with."""
    parent: Annotated[int | None, Title("Parent")] = None
    """The trial of which this one is a variation."""
    hypothesis: Annotated[str, Title("Hypothesis")] = ""
    """What the variation is expected to show."""
    best_by: Annotated[str, Title("Best by")] = ""
    """The metric by which it is best, as min.METRIC or max.METRIC; empty leaves that to its experiment."""
    verdict: Annotated[str, Title("Verdict", values=("keep", "discard", ""))] = ""
    """What somebody has decided about it: `keep` or `discard`."""
    verdict_reason: str = ""
    try_id: Annotated[int | None, Title("Try")] = None
    """The first trial of the try to which it belongs."""
    author: Annotated[str, Title("Author")] = ""
    """Who has tried it."""
    host: Annotated[str, Title("Host")] = ""
    """The machine on which its newest attempt has begun."""
    code: CodeRecord | None = None
    """The code of a try."""
    num_seeds: int = 0
    """The number of trials that its try was to have."""
    environment: Annotated[EnvironmentRecord | None, Title("Environment")]
    """The newest that an attempt has recorded."""
    num_dropped: Annotated[int, Title("Lost records", "dropped")]
    """Records that could not be written, in all attempts."""
    num_bad_lines: Annotated[int, Title("Damaged lines", "damaged_lines")]
    notes: Annotated[str, Title("Notes")] = ""
    """Markdown."""
    notes_author: Annotated[str, Title("Notes by")] = ""
    """The person who has changed them last; empty for those with which it began."""
    is_archived: Annotated[bool, Title("Archived", "archived")] = False
    owner: Annotated[str, Title("Owner")] = ""
    """The owner of the files, where several homes are read as one."""
    home: Annotated[str, Title("Home")] = ""
    """The home that it is read from, likewise."""


class TimeRow(msgspec.Struct, frozen=True):
    """Where the time of a trial went, and what it tells about saves and failures."""

    trial_id: int
    experiment_id: int
    time: TrialTime
    num_attempts: int
    num_failures: int
    """The attempts that have trained, and have failed or were killed, not on purpose."""
    attempts_ms: int
    """The time that all attempts have run, in milliseconds."""
    work_ms: int
    """The part of it that was not their start, also if it was lost."""
    saving_ms: int
    """The time for which saves have held up the training, also where it was lost."""
    num_saves: int
    """The saves that have told this."""
    num_checkpoints: int


class AlertRow(msgspec.Struct, frozen=True):
    """An alert of a trial's script."""

    trial_id: int
    attempt: int
    steps_completed: int
    """The step of the last report before it."""
    time: float
    title: str
    description: str
    level: str
    is_superseded: bool = False


class Reading(msgspec.Struct, frozen=True):
    """The progress of reading what was added to the journals."""

    num_read: int = 0
    """The number of trials that were read, of the `num_trials` that have changed."""
    num_trials: int = 0
    num_points: int = 0


class ReportRow(msgspec.Struct, frozen=True, gc=False):
    trial_id: int
    attempt: int
    group: str
    steps_completed: int | None
    """The step; None for the profiler's groups, which belong to a time only."""
    time: float
    metrics: dict[str, Any]
    """Numbers and `MediaFile`s; in generic groups also JSON values."""
    batch_metrics: list[dict[str, Metric]] | None = None
    is_superseded: bool = False
    rank: Source = 0
    """The rank that reported, or the name of the writer; the profiler's figures belong to its node."""

    @classmethod
    def recorded(cls, trial_id: int, attempt: int, rank: Source, report: Report) -> Self:
        """Returns the row of a record. Raises `ValueError` for values that no report can hold."""
        batches = report.batch_metrics
        return cls(
            trial_id=trial_id,
            attempt=attempt,
            group=report.group,
            steps_completed=report.steps_completed,
            time=report.time,
            metrics=metrics_from_json(report.metrics) | from_json(report.json_metrics or {}),
            batch_metrics=None if batches is None else [metrics_from_json(batch) for batch in batches],
            rank=rank,
        )


class MediaRow(msgspec.Struct, frozen=True):
    """A file of media that a report names, or a medium of an event file."""

    trial_id: int
    attempt: int
    rank: Source
    group: str
    name: str
    """The metric's, with the place in its lists and mappings: "samples", "samples[0]", "samples.cat"."""
    steps_completed: int
    time: float
    file: MediaFile
    is_superseded: bool = False


class ReportPage(msgspec.Struct, frozen=True):
    """Reports of consecutive steps."""

    reports: list[ReportRow]
    next_after: int | None
    """The place from which to read on; None at the end."""


class StreamPosition(msgspec.Struct, frozen=True):
    """A position in the reports of one rank or writer of a trial, in the order in which they were made."""

    attempt: int = 1
    offset: int = 0
    """The position in the attempt's journal, in bytes."""
    fingerprint: int | None = None
    """The fingerprint of what stands before it. If another journal has taken its place, that is read as a whole."""


class ReportStretch(msgspec.Struct, frozen=True):
    """Consecutive reports of one attempt."""

    reports: tuple[ReportRow, ...]
    end: StreamPosition
    """Read on from here. It is where the reading began if nothing is new."""


class News(msgspec.Struct, frozen=True):
    """A record on which a search depends."""

    record: Report | OperationCompleted | EarlyExit | StopAcknowledged
    """A report is one of the validation."""
    end: StreamPosition
    """Read on from here after it."""


class NewsStretch(msgspec.Struct, frozen=True):
    news: tuple[News, ...]
    end: StreamPosition
    """Read on from here. It is where the reading began if nothing is new."""


class AttemptRow(msgspec.Struct, frozen=True):
    """An execution of a trial's script."""

    trial_id: int
    attempt: int
    is_running: bool
    log_size_bytes: int | None
    """The size of its output; None if its output was not kept."""
    ranks: tuple[Source, ...] = (0,)
    """The ranks and the writers that keep a journal of it."""


class Outline(msgspec.Struct, frozen=True):
    """The names and numbers of a trial's reports in all attempts, without their values."""

    groups: list[str]
    """The groups of metrics, in the order of their first reports; the profiler's, too."""
    ranks: Mapping[tuple[str, str], list[Source]]
    """The ranks, and behind them the writers, that have reported each metric, by its group and its name."""
    reporting_ranks: list[Source]
    resume_points: list[int]
    """The steps from which later attempts went on."""


class Marks(NamedTuple):
    """A mark for each trial and experiment. It changes whenever anything is recorded about it."""

    trials: dict[int, str]
    experiments: dict[int, str]


class SeriesRow(msgspec.Struct, frozen=True):
    """A metric of a trial, over its attempts."""

    group: str
    name: str
    count: int
    first_steps: int
    last_steps: int


class ProfileSeriesRow(msgspec.Struct, frozen=True):
    """A figure that the profiler records of a node, over the attempts."""

    rank: Source
    """The rank or the writer that recorded it."""
    group: str
    name: str


Ranks = Source | None
"""The rank or the writer whose reports are asked for; "all" asks for everybody's. None: for each metric and attempt,
the lowest rank that has reported it, or else the first writer by name."""


def source_named(text: str) -> Source:
    """Returns the rank or the writer that a text names."""
    return int(text) if text.isdecimal() else text


Summary = dict[str, dict[str, dict[str, Metric | None]]]
"""Group -> metric -> count, last, min, max, mean."""


class Figures(NamedTuple):
    """The last, the smallest finite and the largest finite value of a metric of a trial."""

    last: Metric
    """The value at its highest step."""
    minimum: Metric | None
    """The smallest finite value; None if no value is finite."""
    maximum: Metric | None


FiguresByTrial = dict[int, dict[str, dict[str, Figures]]]
"""Trial -> group -> metric -> figures."""


class SeriesBucket(msgspec.Struct, frozen=True):
    """A stretch of a series for a chart, with its true minimum and maximum."""

    first_steps: float
    """Whole, unless the series runs over another length than steps."""
    last_steps: float
    count: int
    minimum: Metric | None
    """None if every value is NaN."""
    maximum: Metric | None
    mean: float | None


class Bins(NamedTuple):
    """A series in bins that are equally wide in steps, as columns of equal length. Empty bins are left out.

    Bins of the same width are the same stretches of steps in every series.
    """

    width: float
    """A bin holds the steps from `number * width` to `(number + 1) * width`, which is not in it."""
    numbers: Sequence[float]
    """Whole and ascending."""
    first_steps: Sequence[float]
    """Whole, unless the series runs over another length than steps."""
    last_steps: Sequence[float]
    counts: Sequence[int]
    """The number of points."""
    finite_counts: Sequence[int]
    """The number of points whose value is finite; the other columns are of these."""
    minima: Sequence[float]
    """NaN where no value is finite, in all columns of values."""
    maxima: Sequence[float]
    means: Sequence[float]


class CheckpointRow(msgspec.Struct, frozen=True, kw_only=True):
    storage_id: Annotated[str, Title("Checkpoint", "id")]
    trial_id: Annotated[int, Title("Trial")]
    experiment_id: Annotated[int, Title("Experiment")]
    attempt: Annotated[int, Title("Attempt")]
    steps_completed: Annotated[int, Title("Steps", "steps")]
    state: Annotated[CheckpointState, Title("State")]
    is_pinned: Annotated[bool, Title("Pinned")] = False
    pin_note: str = ""
    is_missing: bool = False
    """The files are gone, although no record says that they were deleted."""
    is_in_trouble: bool = False
    """It was stored after a guard's trouble had begun, and is not gone on from."""
    time: Annotated[Time, Title("Stored")]
    storage: Annotated[str, Title("Storage")]
    """The storage's URL."""
    size_bytes: Annotated[int, Title("Size", "size")]
    metrics: Annotated[dict[str, Metric], Title("Metrics")] = {}
    """The validation metrics that its attempt reported at its step, superseded or not: they belong to these weights."""
    metadata: Annotated[dict[str, Any], Title("Metadata")]
    """The metadata that was stored with it, with later changes."""
    resources: Annotated[dict[str, int], Title("Files")]
