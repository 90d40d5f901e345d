"""The progress of a training, which is part of each checkpoint."""

from __future__ import annotations

from typing import Any

from core_sdk.loop._driver import TrainingProgress


class FitProgress(TrainingProgress):
    """The progress of a training and its results so far."""

    def __init__(self) -> None:
        super().__init__()
        self.is_epoch_start = True
        """Whether the next batch begins an epoch."""
        self.metrics: dict[str, Any] = {}
        """The metrics of the last validation."""
        self.latest_checkpoint: str | None = None

    @property
    def shown(self) -> dict[str, Any]:
        """The progress as it is reported with the metrics."""
        batches, epochs, *_ = self.counts
        return {"batches": batches, "epochs": epochs}

    def state_dict(self) -> dict[str, Any]:
        numbers = {name: value for name, value in self.metrics.items() if isinstance(value, int | float)}
        return {"driver": super().state_dict(), "is_epoch_start": self.is_epoch_start, "metrics": numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state["driver"])
        self.is_epoch_start = state["is_epoch_start"]
        self.metrics = state["metrics"]
