"""The progress of a training, which is part of each checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core_sdk.loop.driver import Progress


@dataclass
class FitProgress:
    """The progress of a training and its results so far."""

    driver: Progress = field(default_factory=Progress)
    is_epoch_start: bool = True
    """Whether the next batch begins an epoch."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """The metrics of the last validation."""
    latest_checkpoint: str | None = None

    @property
    def batches(self) -> int:
        """The number of global batches that are trained."""
        return self.driver.counts[0]

    @property
    def shown(self) -> dict[str, Any]:
        """The progress as it is reported beside the metrics."""
        batches, epochs, *_ = self.driver.counts
        return {"batches": batches, "epochs": epochs}

    def state_dict(self) -> dict[str, Any]:
        numbers = {name: value for name, value in self.metrics.items() if isinstance(value, int | float)}
        return {"driver": self.driver.state_dict(), "is_epoch_start": self.is_epoch_start, "metrics": numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.driver.load_state_dict(state["driver"])
        self.is_epoch_start = state["is_epoch_start"]
        self.metrics = state["metrics"]
