"""The lines of a journal: one struct per kind, which `type` names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from core_sdk._ground.records._cluster import Detour
from core_sdk._ground.records._events import Event
from core_sdk._ground.records._values import Duration, Int64, Line, Time

FORMAT = 1
"""The format of journals and of the folders around them."""

Outcome = Literal["completed", "paused", "canceled", "invalid_hp", "error", "exited"]


class AttemptStarted(Line, tag="attempt"):
    """The first line of every journal."""

    format: int
    trial_id: int
    attempt: int
    host: str
    pid: int
    sdk_version: str
    latest_checkpoint: str | None = None
    resumed_steps: Int64 = 0
    """`steps_completed` of `latest_checkpoint`: earlier attempts' reports beyond it are superseded."""
    rank: int = 0
    """The rank that writes the journal. The attempt's own journal is written by rank 0."""
    writer: str = ""
    """The name of the writer, which is no rank, that keeps the journal. `host` and `pid` belong to its process."""
    home: str = ""
    """The identity of the home in which the attempt ran. A copy of that home has another one."""
    is_spooled: bool = False
    """Whether its node did not see the home, so that the record has come from the node's spool."""
    asked: Time | None = None
    """The time at which the attempt was asked for, if it had to wait for slots or in a queue since."""
    launched: Time | None = None
    """The time at which its command was started; None for a script that nobody has started for a trial."""


# Positional fields are faster to construct, and the training thread makes one of these structs at every report.
class Report(msgspec.Struct, tag="report", tag_field="type", gc=False, omit_defaults=True):
    time: Time
    group: str
    steps_completed: Int64
    metrics: dict[str, int | float | str]
    """Values as `number_to_json` returns them."""
    batch_metrics: list[dict[str, int | float | str]] | None = None
    json_metrics: dict[str, Any] | None = None
    """Metrics that are not numbers, as `to_json` returns them. In "training" and "validation" these are media."""
    loading_s: Duration | None = None
    """The seconds before it for which the training waited for data, since the last report that tells some."""


class Profile(Line, tag="profile"):
    """Figures of the machine: means over the sampled interval, which belong to a time, not to a step."""

    group: str
    metrics: dict[str, int | float | str]


class PhaseEnded(Line, tag="phase"):
    """The training has spent `seconds` on something else, up to this record."""

    phase: str
    seconds: Duration


class OfTrial(Line):
    """The base of records that tell fields of a trial's row, by their names. What is None is unchanged."""


class ProgressReported(OfTrial, tag="progress"):
    progress: float


class StatusSet(OfTrial, tag="status"):
    status: str


class FlopsSet(OfTrial, tag="flops"):
    """The floating-point operations of a step, and those that the devices of all ranks can do in a second."""

    flops_per_step: float
    peak_flops: float | None = None


class MetadataSet(OfTrial, tag="metadata"):
    metadata: dict[str, Any]


class EarlyExit(Line, tag="early_exit"):
    reason: str


class Alert(Line, tag="alert"):
    title: str
    description: str
    level: str


class TroubleFound(Line, tag="trouble"):
    """A guard has found trouble in the report that follows. Its action is decided by this record, and by nothing else.

    If it spoils the training, the attempt's checkpoints beyond `good_until` are not gone on from.
    """

    guard: str
    """The guard in words, as `core-sdk run --guard` takes it."""
    action: Literal["alert", "stop", "go_back"]
    steps: Int64
    """The step of the report."""
    good_until: Int64
    """The last step at which all was well."""
    spoils: bool
    """Whether it is more than something to tell, or an early end."""
    reason: str
    detours: list[Detour] | None = None
    """Where the loaders of the training go on after it has gone back; None if they go back, too."""
    reshuffles: bool = False
    """Whether the order of the data gets another seed."""


class OperationCompleted(Line, tag="operation"):
    """A searcher operation of `length` was completed with `metric`."""

    length: int
    metric: Any


class OperationWanted(Line, tag="operation_wanted"):
    """The trial's search wants it to be trained up to `length`."""

    length: int


class OperationsClosed(Line, tag="operations_closed"):
    """The trial's search will not want the trial to train further than it has wanted so far."""


class _OfCheckpoint(Line):
    storage_id: str


class CheckpointBegun(_OfCheckpoint, tag="checkpoint_begun"):
    """The checkpoint is about to become visible. If no record of it follows, the process was killed before the end."""

    storage: str


class CheckpointStored(_OfCheckpoint, tag="checkpoint"):
    storage: str
    """The storage's URL."""
    steps_completed: Int64
    metadata: dict[str, Any]
    resources: dict[str, Int64]
    """File name -> size in bytes; a directory's name ends with "/" and has size 0."""
    saving_s: Duration | None = None
    """The seconds for which the save has held up the training."""
    behind_s: Duration | None = None
    """The seconds for which the training had gone on since the state was taken that it holds; None if it waited."""


class CheckpointCondemned(_OfCheckpoint, tag="checkpoint_condemned"):
    """The checkpoint is no longer listed, and its files are being deleted."""

    reason: str = ""


class CheckpointDeleted(_OfCheckpoint, tag="checkpoint_deleted"):
    """The checkpoint's files are deleted."""


class CheckpointPruned(_OfCheckpoint, tag="checkpoint_pruned"):
    """Some of the checkpoint's files were deleted."""

    resources: dict[str, Int64]
    """The remaining files and directories, as in `CheckpointStored`."""


class CheckpointPinned(_OfCheckpoint, tag="checkpoint_pinned"):
    """The checkpoint must not be deleted until it is unpinned."""

    note: str = ""


class CheckpointUnpinned(_OfCheckpoint, tag="checkpoint_unpinned"):
    """The checkpoint may be deleted again."""


class CheckpointMetadataSet(_OfCheckpoint, tag="checkpoint_metadata"):
    """The tracker's metadata of the checkpoint changed. The stored files are unchanged."""

    metadata: dict[str, Any] = {}
    """Keys that were added or replaced."""
    removed: list[str] = []


class TrialLabelsChanged(Line, tag="trial_labels"):
    added: list[str] = []
    removed: list[str] = []


class TrialDescribed(OfTrial, tag="trial_described"):
    """Somebody named the trial, wrote its notes, or judged it."""

    name: str | None = None
    """An empty name stands for the generated one."""
    notes: str | None = None
    notes_author: str | None = None
    """The person who has written them."""
    verdict: str | None = None
    """`keep` or `discard`; empty if the verdict was taken back."""
    verdict_reason: str | None = None


class TrialArchivedSet(Line, tag="trial_archived"):
    """The trial was archived or unarchived. Lists hide an archived trial until an attempt after `attempt` begins."""

    attempt: int | None
    """The trial's newest attempt; None if the trial was unarchived."""


class Settled(Line, tag="settled"):
    """The state of a trial whose attempt somebody stopped or killed, or which waits in a scheduler's queue.

    It holds until a later attempt begins.
    """

    state: Literal["COMPLETED", "CANCELED", "PAUSED", "ERROR"]
    reason: str
    attempt: int
    """The trial's newest attempt; 0 if none has begun."""


class StallFound(Line, tag="stall"):
    """The attempt's ranks have given no sign of life for longer than usual, or have gone on after that."""

    attempt: int
    words: str = ""
    """The rank that stands, and those that wait for it."""
    is_over: bool = False


class CheckpointUsed(_OfCheckpoint, tag="checkpoint_used"):
    """The attempt uses a checkpoint of another trial, for inference for example."""


class StopAcknowledged(Line, tag="stop"):
    """`should_preempt()` returned True to the script."""

    source: str


class Dropped(Line, tag="dropped"):
    """`count` records before this line could not be written."""

    count: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    reason: str


class Ended(Line, tag="ended"):
    outcome: Outcome
    error: str | None = None


Record = (
    AttemptStarted
    | Report
    | Profile
    | PhaseEnded
    | ProgressReported
    | StatusSet
    | FlopsSet
    | MetadataSet
    | EarlyExit
    | Alert
    | TroubleFound
    | OperationCompleted
    | OperationWanted
    | OperationsClosed
    | CheckpointBegun
    | CheckpointStored
    | CheckpointCondemned
    | CheckpointDeleted
    | CheckpointPruned
    | CheckpointPinned
    | CheckpointUnpinned
    | CheckpointMetadataSet
    | TrialLabelsChanged
    | TrialDescribed
    | TrialArchivedSet
    | Settled
    | StallFound
    | CheckpointUsed
    | StopAcknowledged
    | Dropped
    | Ended
    | Event
)
