"""The operations of a search: plain JSON values, with the names and arguments of `determined` 0.37."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

import msgspec


class Operation(msgspec.Struct, frozen=True, gc=False, tag_field="operation"):
    """An operation that a search asks its driver to carry out."""


class Create(Operation, frozen=True, gc=False, tag="create"):
    """Make a trial with these hyperparameters and start it. The search chooses the trial's request id."""

    request_id: UUID
    hparams: dict[str, Any]
    checkpoint: Any = None
    """The id of the checkpoint whose weights the trial begins with. An object that has a `uuid` may be given, too."""

    def __post_init__(self) -> None:
        if self.checkpoint is not None:
            msgspec.structs.force_setattr(self, "checkpoint", str(getattr(self.checkpoint, "uuid", self.checkpoint)))

    @property
    def trial_seed(self) -> int:
        """A seed for the trial, below 2**31, which follows from its request id."""
        return self.request_id.int % 2**31


class ValidateAfter(Operation, frozen=True, gc=False, tag="validate_after"):
    """Train until `length`, counted from the beginning of the trial, then report the metric. Resumes a paused trial."""

    request_id: UUID
    length: int


class Pause(Operation, frozen=True, gc=False, tag="pause"):
    """End the trial's process and keep its checkpoint: a later `ValidateAfter` may resume it, or `Close` end it."""

    request_id: UUID


class Stop(Operation, frozen=True, gc=False, tag="stop"):
    """Ask the trial to save a checkpoint and to end, wherever it is in its training."""

    request_id: UUID


class Close(Operation, frozen=True, gc=False, tag="close"):
    """Let the trial end once it has completed what it was asked for."""

    request_id: UUID


class Progress(Operation, frozen=True, gc=False, tag="progress"):
    """Show this progress of the whole search: 0 to 1."""

    progress: float


class Shutdown(Operation, frozen=True, gc=False, tag="shutdown"):
    """End the experiment: as canceled, as failed, or as completed."""

    cancel: bool = False
    failure: bool = False


class Warn(Operation, frozen=True, gc=False, tag="warn"):
    """Show a warning to the user. A search gives each kind of warning once, about the first trial that it concerns."""

    kind: Literal["metric_missing", "time_missing", "time_not_growing", "ended_early", "invalid_hparams"]
    message: str
    request_id: UUID | None = None


AnyOperation = Create | ValidateAfter | Pause | Stop | Close | Progress | Shutdown | Warn
"""The union of all operations, for decoding."""
