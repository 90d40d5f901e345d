"""One call of `fit()`: trains batches, reports, validates and saves, as a `Driver` orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk._ground.records import number_of
from core_sdk._runtime.best import BestValidation
from core_sdk._runtime.runtime import Runtime
from core_sdk._runtime.stopping import StopFlag
from core_sdk.loop import _rng as rng
from core_sdk.loop._plan import Draw
from core_sdk.pytorch._fitting.callbacks import TrialCallbacks
from core_sdk.pytorch._fitting.checkpoint import TrialState
from core_sdk.pytorch._fitting.data import Data
from core_sdk.pytorch._fitting.metrics import (
    BatchMetrics,
    LeftOut,
    NotJson,
    as_json,
    mean,
    means_of_batches,
    metric_names,
    reduced,
    without_none,
)
from core_sdk.pytorch._fitting.progress import FitProgress
from core_sdk.pytorch._fitting.validation import Validator
from core_sdk.pytorch._reducers import reduce_across_slots
from core_sdk.pytorch._run import TrialRun
from core_sdk.pytorch._trial import PyTorchTrial


class Fitting:
    """The training of a trial: what its `Driver` orders."""

    def __init__(
        self,
        trial: PyTorchTrial,
        run: TrialRun[Any],
        callbacks: TrialCallbacks,
        progress: FitProgress,
        data: Data,
        validator: Validator,
        state: TrialState,
        stop_flag: StopFlag,
    ) -> None:
        self._run = run
        self._runtime: Runtime = run.runtime
        self._trial = trial
        self._callbacks = callbacks
        self._progress = progress
        self._data = data
        self._validator = validator
        self._state = state
        self._train = run.core.train
        self._is_chief = run.distributed.is_chief
        self._train_batch = trial.train_batch
        self._batch_hooks = callbacks.hooks("on_training_batch_end")
        self._has_workload_hooks = bool(callbacks.hooks("on_training_workload_end"))
        self._metrics = BatchMetrics("train_batch")
        self._best = BestValidation(run.core, run.exp_conf or {})
        self._left_out = LeftOut(self._is_chief)
        self._stream: Iterator[tuple[Draw, Any]]
        self.should_stop = stop_flag.is_set

    def start(self) -> None:
        """Begins to read the training data. Afterwards only the training itself draws random numbers."""
        for model in self._runtime.models:
            model.train()
        self._run.reducers.reset()
        self._stream = self._data.stream()
        if self._is_chief:
            self._train.set_status("training")

    @property
    def batches_per_epoch(self) -> int | None:
        return self._data.batches_per_epoch

    def train_batch(self) -> Any:
        trained, batch = self._next_batch()
        progress, position, epoch = self._progress, self._run.position, trained.epoch
        index, is_epoch_end = progress.counts[0], trained.is_epoch_end
        position.batch, position.epoch = index, epoch
        position.is_epoch_start, position.is_epoch_end = progress.is_epoch_start, is_epoch_end
        self._runtime.begin_batch(index, is_first=index == position.initial_batch)
        if progress.is_epoch_start:
            self._callbacks.call("on_training_epoch_start", epoch)
        returned = self._train_on(batch, trained, index)
        if self._run.profiler is not None:
            self._run.profiler.step()
        self._runtime.end_batch(index + 1, epoch + 1 if is_epoch_end else None)
        for hook in self._batch_hooks:
            hook(epoch, index, returned)
        progress.is_epoch_start = is_epoch_end
        if is_epoch_end:
            self._callbacks.call("on_training_epoch_end", epoch)
        return trained

    def _next_batch(self) -> tuple[Any, Any]:
        """Returns the next global batch, which also knows the epoch in which it begins, and this rank's part of it."""
        return next(self._stream)

    def _train_on(self, batch: Any, draw: Any, index: int) -> Any:
        """Trains on a batch, and returns what the trial has returned."""
        if self._run.moves_batches:
            batch = self._run.to_device(batch)
        returned = self._train_batch(batch=batch, epoch_idx=draw.epoch, batch_idx=index)
        self._metrics.add(returned, index, self._data.num_samples(draw, batch))
        return returned

    def report(self, progress: float) -> None:
        distributed = self._run.distributed
        reducers = self._run.reducers.chosen(for_training=True)
        own = self._metrics.take(), [each.call("per_slot_reduce") for each in reducers]
        self._run.reducers.reset()
        gathered = distributed.allgather(own) if self._has_workload_hooks else distributed.gather(own)
        if gathered is None:
            return
        ranks = [columns for columns, _ in gathered]
        means = reduced(ranks, dict.fromkeys(metric_names(ranks), mean), self._left_out)
        avg_metrics = {**without_none(means), **reduce_across_slots(reducers, [each for _, each in gathered])}
        batch_metrics = means_of_batches(ranks)
        if self._is_chief:
            numbers, others = self._split(avg_metrics)
            self._train.report_training_metrics(self._progress.counts[0], numbers, batch_metrics)
            self._report_others("training", others)
            self._train.report_progress(progress)
        if self._has_workload_hooks:
            # A stop causes an additional report, so the random draws of hooks must not change the training.
            with rng.kept():
                self._callbacks.call("on_training_workload_end", {**self._progress.shown, **avg_metrics}, batch_metrics)

    def validate(self) -> bool | None:
        if self._is_chief:
            self._train.set_status("validating")
        metrics = self._validator.run(self._progress.counts[0], self.should_stop, self._progress.shown)
        if metrics is None:
            return None
        self._progress.metrics = metrics

        def report() -> bool:
            numbers, others = self._split(metrics)
            is_best = self._best.is_best(numbers)
            self._train.report_validation_metrics(self._progress.counts[0], numbers)
            self._report_others("validation", others)
            self._train.set_status("training")
            return is_best

        return self._run.distributed.channel.broadcast_outcome(report)

    def save(self) -> None:
        self._progress.latest_checkpoint = self._state.save()

    def await_save(self) -> None:
        """Blocks until the last checkpoint is stored. Raises its failure, on every rank. Collective."""
        self._state.wait()

    def explain(self, error: BaseException) -> None:
        """Adds a note to an error of torch about a lost worker of a loader."""
        self._data.explain(error)
        self._validator.explain(error)

    def searched_metric(self) -> Any:
        """Returns the searcher's metric of the last validation."""
        return self._best.searched(self._progress.metrics)

    def best_checkpoint(self) -> str | None:
        """Returns the storage id of the trial's checkpoint with the best validation, or None. Collective."""
        return self._run.distributed.channel.broadcast_outcome(self._best.checkpoint)

    def _split(self, metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Splits metrics into numbers, to which it adds the progress, and other values that JSON can hold.

        Tensors with one element count as numbers.
        """
        numbers = self._progress.shown
        others: dict[str, Any] = {}
        for name, value in metrics.items():
            if (number := number_of(value)) is not None:
                numbers[name] = number
            elif isinstance(found := as_json(value), NotJson):
                self._left_out.say(name, f"it is {found.kind}")
            else:
                others[name] = found
        return numbers, others

    def _report_others(self, group: str, others: dict[str, Any]) -> None:
        if others:
            self._train.report_metrics(f"{group}_values", self._progress.counts[0], others)
