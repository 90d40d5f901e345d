"""The result of `Trainer.fit()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from core_sdk.runtime.stopping import StopReason

EndReason = Literal["completed"] | StopReason


@dataclass(frozen=True)
class FitResult:
    """The result of a training; the same on all ranks."""

    metrics: dict[str, Any]
    """The metrics of the last validation; empty if there was none."""
    best_checkpoint: str | None
    """The storage id of this trial's checkpoint with the best validation; None if no metric says which is the best."""
    latest_checkpoint: str | None
    """The storage id of the newest checkpoint; it has the state at the end of the training."""
    steps_completed: int
    """The number of global batches, counted from the beginning of the training."""
    reason: EndReason
    """The reason for the end: it is "completed"; "preempted", and can be resumed; "stopped" by
    `context.set_stop_requested()`; or the "searcher" wants no more of it."""
