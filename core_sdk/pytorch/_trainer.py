"""The Trainer, which trains a trial."""

from __future__ import annotations

import contextlib
import logging

from core_sdk.loop.driver import CheckpointPolicy, Schedule
from core_sdk.loop.schedule import Batch, TrainUnit, check_length
from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._fitting.callbacks import Callbacks
from core_sdk.pytorch._fitting.checkpoint import read_state
from core_sdk.pytorch._fitting.fitting import Fitting
from core_sdk.pytorch._fitting.result import EndReason, FitResult
from core_sdk.pytorch._trial import PyTorchTrial

logger = logging.getLogger("core_sdk.pytorch")

_EVERY_100_BATCHES = Batch(100)


class Trainer:
    """Trains a trial, inside the `with` of the `pytorch.init()` that has given its context."""

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: int | None = None,
    ) -> None:
        """As in `determined` since 0.38, does nothing but say so: `fit(profiling_enabled=True)` has replaced it."""
        logger.warning(
            "configure_profiler() does nothing: fit(profiling_enabled=True) records the use of the machine, and "
            "context.set_profiler() profiles the code"
        )

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit | None = _EVERY_100_BATCHES,
        checkpoint_policy: CheckpointPolicy = "best",
        latest_checkpoint: str | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool = False,
    ) -> FitResult:
        schedule = Schedule(
            validation=validation_period,
            checkpoint=checkpoint_period,
            reporting=reporting_period,
            policy=checkpoint_policy,
            validates_first=step_zero_validation,
        )
        if max_length is None:
            raise ValueError("fit() needs to know how long to train: pass max_length, such as max_length=Epoch(10)")
        check_length(max_length)
        context, callbacks = self._context, Callbacks(self._trial.build_callbacks())
        storage_id = latest_checkpoint or context._core.info.latest_checkpoint
        content = None if storage_id is None else read_state(context, storage_id)
        with contextlib.ExitStack() as ends:
            callbacks.call("on_trial_startup", 0, storage_id)
            ends.callback(callbacks.call, "on_trial_shutdown")
            fitting = Fitting(self._trial, context, callbacks, schedule)
            if content is not None and storage_id is not None:
                fitting.load(content, storage_id)
            fitting.start()
            callbacks.call("on_training_start")
            is_complete = fitting.driver.run(max_length)
        reason: EndReason = "completed" if is_complete else fitting.stop_flag.reason
        return FitResult(
            metrics=fitting.metrics,
            best_checkpoint=fitting.best_checkpoint(),
            latest_checkpoint=fitting.latest_checkpoint,
            steps_completed=fitting.driver.counters.batches,
            reason=reason,
        )
