"""What `Trainer.fit()` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

EndReason = Literal["completed", "preempted", "stopped", "searcher"]


@dataclass(frozen=True)
class FitResult:
    """How a training went; the same on all ranks."""

    metrics: dict[str, Any]
    """Those of the last validation; empty if there was none."""
    best_checkpoint: str | None
    """The storage id of this trial's checkpoint with the best validation; None if nothing says which is the best."""
    latest_checkpoint: str | None
    """The storage id of the newest checkpoint; it has the state at the end of the training."""
    steps_completed: int
    """Global batches, counted from the beginning of the training."""
    reason: EndReason
    """Why it ended: it is "completed"; "preempted", and can be resumed; "stopped" by `context.set_stop_requested()`; or
    the "searcher" wants no more of it."""
