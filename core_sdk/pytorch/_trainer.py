"""The Trainer, which trains a trial."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Collection
from typing import Any, Literal

from core_sdk.core import Unit
from core_sdk.environment import is_test_mode
from core_sdk.loop import rng
from core_sdk.loop.driver import CheckpointPolicy, Schedule
from core_sdk.loop.schedule import Batch, Epoch, Record, TrainUnit, check_length
from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._fitting.callbacks import Callbacks
from core_sdk.pytorch._fitting.checkpoint import batches_trained, is_own, kept_parts, read_state
from core_sdk.pytorch._fitting.fitting import Fitting
from core_sdk.pytorch._fitting.result import FitResult
from core_sdk.pytorch._trial import PyTorchTrial

logger = logging.getLogger("core_sdk.pytorch")

_EVERY_100_BATCHES = Batch(100)
_UNITS: dict[Unit | None, type[TrainUnit]] = {
    Unit.EPOCHS: Epoch,
    Unit.RECORDS: Record,
    Unit.BATCHES: Batch,
    None: Batch,
}


class Trainer:
    """Trains a trial, inside the `with` of the `pytorch.init()` that has given its context."""

    _fitting_class: type[Fitting] = Fitting

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._context = context
        self._latest_checkpoint: str | None = None
        """The newest checkpoint of an earlier `fit()`."""

    def configure_profiler(
        self,
        sync_timings: bool = True,
        enabled: bool = False,
        begin_on_batch: int = 0,
        end_after_batch: int | None = None,
    ) -> None:
        """Logs a warning, as in `determined` since 0.38: `fit(profiling_enabled=True)` has taken its place."""
        logger.warning(
            "configure_profiler() does nothing: fit(profiling_enabled=True) records how the machine is used, and "
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
        *,
        progress_bar: bool | None = None,
        keep: Literal["all", "model"] | Collection[str] | None = None,
    ) -> FitResult:
        """Trains until `max_length`, counted from the beginning of the trial, and returns how that went. Collective.

        Periods are units: `Batch(100)`, `Epoch(1)`, `Record(10_000)` or `Seconds(600)`, or counts such as
        `Batch([1, 10, 100])`. Where the searcher of the configuration says how long to train, that counts instead of
        `max_length`, which may then be left out.

        The end of the training is validated and saved in any case. `checkpoint_policy` says which validations a
        checkpoint follows: those that are the "best" of the experiment so far, "all", or "none". Metrics are reported
        every `reporting_period`, and whenever the training validates or saves.

        The training goes on from `latest_checkpoint`, by default the one from which this attempt resumes. `keep` says
        what it takes from there: "all"; "model", the weights alone; or a set of "models", "optimizers",
        "lr_schedulers", "callbacks" and "training", which is the place in the data, the counters and the random
        numbers. The rest begins anew, such as an optimizer with another learning rate. The default is "all"; from the
        checkpoint of another trial it is all but "training". DeepSpeed's engines always keep all that they have saved.

        When a stop is asked for, it saves and returns after the current batch, also of a validation, which is made up
        for after the resume. `step_zero_validation` validates before the first batch. `test_mode` trains and validates
        one batch, saves and returns. `profiling_enabled` records the use of the machine. The chief shows a
        `progress_bar`, by default on a terminal.
        """
        self._context._core.preempt.should_preempt(auto_ack=False)  # from now on SIGTERM is a stop
        is_test = test_mode or is_test_mode()
        self._check_wrapped()
        max_length = self._wanted_length(max_length, is_test)
        schedule = Schedule(
            validation=None if is_test else validation_period,
            checkpoint=None if is_test else checkpoint_period,
            reporting=None if is_test else reporting_period,
            policy=checkpoint_policy,
            validates_first=step_zero_validation and not is_test,
        )
        callbacks = Callbacks(self._trial.build_callbacks())
        core_context, profiler = self._context._core, self._context.profiler
        storage_id = latest_checkpoint or self._latest_checkpoint or core_context.info.latest_checkpoint
        with contextlib.ExitStack() as ends:
            callbacks.call_at_end(ends)
            fitting = self._begin(callbacks, schedule, storage_id, is_test, keep)
            if profiler is not None:
                ends.enter_context(profiler)
            if profiling_enabled:
                core_context.profiler.on()
                ends.callback(core_context.profiler.off)
            length = Batch(fitting.counters.batches + 1) if is_test else max_length
            try:
                is_complete = self._run(fitting, length, progress_bar)
            except RuntimeError as error:
                fitting.explain(error)
                raise
        if is_complete:
            self._context._warn_of_open_window()
        self._latest_checkpoint = fitting.latest_checkpoint
        return FitResult(
            metrics=fitting.metrics,
            best_checkpoint=fitting.best_checkpoint(),
            latest_checkpoint=fitting.latest_checkpoint,
            steps_completed=fitting.counters.batches,
            reason="completed" if is_complete else fitting.stop_flag.reason,
        )

    def _begin(
        self,
        callbacks: Callbacks,
        schedule: Schedule,
        storage_id: str | None,
        is_test: bool,
        keep: str | Collection[str] | None,
    ) -> Fitting:
        """Makes a training, and loads the checkpoint into it, so that it is ready for the next batch."""
        context = self._context
        content = None if storage_id is None else self._read(storage_id)
        kept = kept_parts(keep, content is not None and is_own(context, content))
        is_resumed = content is not None and "training" in kept
        context._initial_batch = batches_trained(content) if content is not None and is_resumed else 0
        callbacks.call("on_trial_startup", context._initial_batch, storage_id)
        fitting = self._fitting_class(
            self._trial, context, callbacks, schedule, max_validation_batches=1 if is_test else None
        )
        if storage_id is not None and content is not None:
            fitting.load(content, storage_id, kept)
        fitting.start()
        # The random draws of the hook belong to the first start. After a resume they must not count.
        with rng.kept() if is_resumed else contextlib.nullcontext():
            callbacks.call("on_training_start")
        return fitting

    def _read(self, storage_id: str) -> dict[str, Any]:
        return read_state(self._context, storage_id)

    def _wanted_length(self, max_length: TrainUnit | None, is_test: bool) -> TrainUnit | None:
        """Returns the length of the training; None if the searcher determines it. Collective."""
        if max_length is not None:
            check_length(max_length)
        if is_test:
            return max_length
        if self._context._core.searcher.has_operations():
            if max_length is not None:
                logger.info("the searcher of the configuration says how long to train, instead of %r", max_length)
            return None
        if max_length is None:
            raise ValueError("nothing says how long to train: pass max_length to fit(), such as Epoch(10)")
        return max_length

    def _check_wrapped(self) -> None:
        context, kind = self._context, type(self._trial).__name__
        if not context.models:
            raise ValueError(f"{kind} has wrapped no model: call context.wrap_model(model) in its __init__()")
        if not context.optimizers:
            raise ValueError(
                f"{kind} has wrapped no optimizer: call context.wrap_optimizer(optimizer) in its __init__()"
            )
        context._check_parameters()

    def _run(self, fitting: Fitting, length: TrainUnit | None, progress_bar: bool | None) -> bool:
        """Returns whether the training came to its end."""
        if length is not None:
            return self._run_until(fitting, length, progress_bar)
        core_context = self._context._core
        unit = _UNITS[core_context.searcher.get_configured_units()]
        for operation in core_context.searcher.operations():
            if not self._run_until(fitting, unit(operation.length), progress_bar):
                return False
            if self._context.distributed.is_chief:
                operation.report_completed(fitting.searched_metric())
        return not core_context.preempt.is_stop_agreed

    def _run_until(self, fitting: Fitting, length: TrainUnit, progress_bar: bool | None) -> bool:
        is_shown = sys.stderr.isatty() if progress_bar is None else progress_bar
        if not is_shown or not self._context.distributed.is_chief:
            return fitting.driver.run(length)
        from core_sdk.pytorch._fitting.progress_bar import (
            ProgressBar,
        )  # rich, which a training in the background spares

        with ProgressBar(length, fitting.batches_per_epoch, lambda: fitting.counters):
            return fitting.driver.run(length)
