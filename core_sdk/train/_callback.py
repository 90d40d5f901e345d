"""What a program may do beside its training."""

from __future__ import annotations

from typing import Any

from core_sdk.train._checkpoint import Checkpoint


class UserCallback:
    """Override what is needed. The methods are called in the program that has called `fit()`, in another thread."""

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """After each `report()`: the metrics of every worker, by rank. `run_context` is the trainer."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """After a worker has failed, before the training is started again or given up."""
