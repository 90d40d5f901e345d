"""What a program may do beside its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core_sdk.train._checkpoint import Checkpoint

if TYPE_CHECKING:
    from core_sdk.train._configs import RunConfig, ScalingConfig


@dataclass(frozen=True)
class TrainRunContext:
    """The training of which a callback hears."""

    trial_id: int
    run_config: RunConfig
    scaling_config: ScalingConfig
    train_loop_config: Mapping[str, Any] | None


class UserCallback:
    """Override what is needed. The methods are called in the program that has called `fit()`, in another thread.

    With callbacks, the ranks wait for each other in every `report()`. What a callback raises is logged, and the
    training goes on.
    """

    def after_report(
        self, run_context: TrainRunContext, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """After each `report()`: the metrics of every worker, by rank."""

    def after_exception(self, run_context: TrainRunContext, worker_exceptions: dict[int, Exception]) -> None:
        """After a worker has failed, before the training is started again or given up."""
