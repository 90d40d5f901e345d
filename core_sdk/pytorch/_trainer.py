"""The Trainer, which trains a trial, and its result."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from core_sdk._ground.environment import is_test_mode
from core_sdk._ground.records import Keep
from core_sdk._runtime.stopping import StopFlag, StopReason
from core_sdk.core import Unit
from core_sdk.loop import _rng as rng
from core_sdk.loop._driver import CheckpointPolicy, Driver, Schedule
from core_sdk.loop._schedule import Batch, Epoch, Record, TrainUnit, check_length
from core_sdk.pytorch._context import PyTorchTrialContext, run_of
from core_sdk.pytorch._fitting.callbacks import TrialCallbacks
from core_sdk.pytorch._fitting.checkpoint import TrialState, is_own, parts_to_keep, position_in, read_state
from core_sdk.pytorch._fitting.data import TRAINING_LOADER, Data, built_loader
from core_sdk.pytorch._fitting.fitting import Fitting
from core_sdk.pytorch._fitting.progress import FitProgress
from core_sdk.pytorch._fitting.validation import Validator
from core_sdk.pytorch._run import BatchPosition
from core_sdk.pytorch._trial import PyTorchTrial

logger = logging.getLogger("core_sdk.pytorch")

Bar = Callable[[TrainUnit], contextlib.AbstractContextManager[Any]]
"""Shows the progress of a training to its length."""

_EVERY_100_BATCHES = Batch(100)
_UNITS: dict[Unit | None, type[TrainUnit]] = {
    Unit.EPOCHS: Epoch,
    Unit.RECORDS: Record,
    Unit.BATCHES: Batch,
    None: Batch,
}


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
    reason: Literal["completed"] | StopReason
    """The reason for the end: it is "completed"; "preempted", and can be resumed; "stopped" by
    `context.set_stop_requested()`; or the "searcher" wants no more of it."""


class Trainer:
    """Trains a trial, inside the `with` of the `pytorch.init()` that has given its context."""

    _fitting_class: type[Fitting] = Fitting
    _validator_class: type[Validator] = Validator

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        self._trial = trial
        self._run = run_of(context)
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
        keep: Keep | None = None,
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
        numbers. The rest starts from its beginning, such as an optimizer with another learning rate. The default is
        "all"; from the checkpoint of another trial it is all but "training". `core-sdk trial continue --keep` has
        precedence.
        DeepSpeed's engines always keep all that they have saved.

        When a stop is asked for, it saves and returns after the current batch, also of a validation, which is made up
        for after the resume. `step_zero_validation` validates before the first batch. `test_mode` trains and validates
        one batch, saves and returns. `profiling_enabled` records the use of the machine. The chief shows a
        `progress_bar`, by default on a terminal.
        """
        core_context, progress = self._run.core, FitProgress()
        core_context.preempt.should_preempt(auto_ack=False)  # from now on SIGTERM is a stop
        is_test = test_mode or is_test_mode()
        self._run.runtime.check(type(self._trial).__name__)
        max_length = self._wanted_length(max_length, is_test)
        schedule = Schedule(
            validation=None if is_test else validation_period,
            checkpoint=None if is_test else checkpoint_period,
            reporting=None if is_test else reporting_period,
            policy=checkpoint_policy,
            validates_first=step_zero_validation and not is_test,
        )
        callbacks = TrialCallbacks(self._trial.build_callbacks())
        stop_flag = StopFlag(core_context.preempt, lambda: self._run.is_stop_requested, "context.set_stop_requested()")
        storage_id = latest_checkpoint or self._latest_checkpoint or core_context.info.latest_checkpoint
        with contextlib.ExitStack() as ends:
            callbacks.call_at_end(ends)
            fitting = self._begin(callbacks, progress, stop_flag, storage_id, is_test, keep)
            if self._run.profiler is not None:
                ends.enter_context(self._run.profiler)
            if profiling_enabled:
                core_context.profiler.on()
                ends.callback(core_context.profiler.off)
            driver = Driver(fitting, schedule, progress, self._run.distributed.broadcast)
            bar = self._progress_bar(progress_bar, fitting.batches_per_epoch, progress)
            try:
                length = Batch(progress.counts[0] + 1) if is_test else max_length
                if length is None:
                    is_complete = self._train_as_searched(fitting, driver, bar)
                else:
                    with bar(length):
                        is_complete = driver.run(length)
                fitting.await_save()
            except RuntimeError as error:
                fitting.explain(error)
                raise
        if is_complete:
            self._run.runtime.end_training(progress.counts[0])
        self._latest_checkpoint = progress.latest_checkpoint
        return FitResult(
            metrics=progress.metrics,
            best_checkpoint=fitting.best_checkpoint(),
            latest_checkpoint=progress.latest_checkpoint,
            steps_completed=progress.counts[0],
            reason="completed" if is_complete else stop_flag.reason,
        )

    def _begin(
        self,
        callbacks: TrialCallbacks,
        progress: FitProgress,
        stop_flag: StopFlag,
        storage_id: str | None,
        is_test: bool,
        keep: Keep | None,
    ) -> Fitting:
        """Makes a training, and loads the checkpoint into it, so that it is ready for the next batch."""
        trial, run = self._trial, self._run
        if storage_id == run.core.info.latest_checkpoint:
            keep = run.core.checkpoint.what_to_keep(keep)
        content = None if storage_id is None else read_state(run, storage_id)
        is_own_checkpoint = content is not None and is_own(run, content)
        kept = parts_to_keep(keep, is_own_checkpoint)
        is_resumed = content is not None and "training" in kept
        run.position = position_in(content) if content is not None and is_resumed else BatchPosition()
        callbacks.call("on_trial_startup", run.position.initial_batch, storage_id)
        data = self._training_data()
        data.check_ranks(run.distributed)
        validator = self._validator_class(trial, run, callbacks, 1 if is_test else None)
        state = TrialState(trial, run, callbacks, progress, data)
        fitting = self._fitting_class(trial, run, callbacks, progress, data, validator, state, stop_flag)
        if storage_id is not None and content is not None:
            self._load(state, content, storage_id, kept)
            progress.latest_checkpoint = storage_id if is_own_checkpoint else None
        fitting.start()
        # The random draws of the hook belong to the first start. After a resume they must not count.
        with rng.kept() if is_resumed else contextlib.nullcontext():
            callbacks.call("on_training_start")
        return fitting

    def _training_data(self) -> Data:
        return Data(self._trial, built_loader(self._trial, TRAINING_LOADER, self._run), TRAINING_LOADER, self._run)

    def _load(self, state: TrialState, content: dict[str, Any], storage_id: str, kept: Collection[str]) -> None:
        """Resumes from the parts `kept` of the content of a checkpoint. Collective."""
        state.load(content, kept)

    def _wanted_length(self, max_length: TrainUnit | None, is_test: bool) -> TrainUnit | None:
        """Returns the length of the training; None if the searcher determines it. Collective."""
        if max_length is not None:
            check_length(max_length)
        if is_test:
            return max_length
        if self._run.core.searcher.has_operations():
            if max_length is not None:
                logger.info("the searcher of the configuration says how long to train, instead of %r", max_length)
            return None
        if max_length is None:
            raise ValueError("nothing says how long to train: pass max_length to fit(), such as Epoch(10)")
        return max_length

    def _train_as_searched(self, fitting: Fitting, driver: Driver, bar: Bar) -> bool:
        """Trains as long as the searcher wants, and returns whether the training came to its end."""
        core_context = self._run.core
        unit = _UNITS[core_context.searcher.get_configured_units()]
        for operation in core_context.searcher.operations():
            length = unit(operation.length)
            with bar(length):
                if not driver.run(length):
                    return False
            if self._run.distributed.is_chief:
                operation.report_completed(fitting.searched_metric())
        return not core_context.preempt.is_stop_agreed

    def _progress_bar(self, is_wanted: bool | None, batches_per_epoch: int | None, progress: FitProgress) -> Bar:
        """Returns a function that shows the progress to a length, if the chief is to show it."""
        is_shown = sys.stderr.isatty() if is_wanted is None else is_wanted
        if not is_shown or not self._run.distributed.is_chief:
            return lambda length: contextlib.nullcontext()
        from core_sdk.pytorch._fitting.progress_bar import ProgressBar  # rich, which others need not import

        return lambda length: ProgressBar(length, batches_per_epoch, lambda: progress.counters)
