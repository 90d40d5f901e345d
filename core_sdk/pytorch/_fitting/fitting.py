"""One call of `fit()`: trains batches, reports, validates and saves, as a `Driver` orders."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any, Protocol

from core_sdk.loop import rng
from core_sdk.loop.driver import Driver, Schedule, Trained
from core_sdk.loop.plan import Draw
from core_sdk.loop.schedule import Counters
from core_sdk.pytorch._context import PyTorchTrialContext
from core_sdk.pytorch._fitting.best import BestValidation
from core_sdk.pytorch._fitting.callbacks import Callbacks
from core_sdk.pytorch._fitting.checkpoint import TrialState, is_own
from core_sdk.pytorch._fitting.data import TRAINING_LOADER, Data, built_loader
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
from core_sdk.pytorch._fitting.stopping import StopFlag
from core_sdk.pytorch._fitting.validation import Validator
from core_sdk.pytorch._reducers import reduce_across_slots
from core_sdk.pytorch._trial import PyTorchTrial

logger = logging.getLogger("core_sdk.pytorch")


class BatchOfEpoch(Trained, Protocol):
    """A global batch that knows the epoch in which it begins."""

    @property
    def epoch(self) -> int: ...


class Fitting:
    """The training of a trial, which its `Driver` drives. The driver counts what is completed."""

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        callbacks: Callbacks,
        schedule: Schedule,
        *,
        max_validation_batches: int | None = None,
    ) -> None:
        """Builds the data loaders."""
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._train = context._core.train
        self._is_chief = context.distributed.is_chief
        self._moves_batches = context._moves_batches
        self._train_batch = trial.train_batch
        self._batch_hooks = callbacks.hooks("on_training_batch_end")
        self._has_workload_hooks = bool(callbacks.hooks("on_training_workload_end"))
        self._metrics = BatchMetrics("train_batch")
        self._data = self._training_data()
        self._data.check_ranks(context.distributed)
        self._stream: Iterator[tuple[Draw, Any]]
        self._batch_index = 0
        self._is_epoch_start = True
        self._validator = self._made_validator(max_validation_batches)
        self._best = BestValidation(context)
        self.stop_flag = StopFlag(context)
        self.should_stop = self.stop_flag.is_set
        self.driver = Driver(self, schedule, context.distributed.broadcast)
        self._state = self._made_state()
        self._left_out = LeftOut(self._is_chief)
        self.latest_checkpoint: str | None = None
        self.metrics: dict[str, Any] = {}
        """The metrics of the last validation."""

    def _training_data(self) -> Data:
        loader = built_loader(self._trial, TRAINING_LOADER, self._context)
        return Data(self._trial, loader, TRAINING_LOADER, self._context)

    def _made_validator(self, max_batches: int | None) -> Validator:
        return Validator(self._trial, self._context, self._callbacks, max_batches)

    def _made_state(self) -> TrialState:
        return TrialState(self._trial, self._context, self._callbacks, self, self._data)

    def load(self, content: dict[str, Any], storage_id: str, kept: Collection[str]) -> None:
        """Resumes from the parts `kept` of the content of a checkpoint. Collective."""
        self._state.load(content, kept)
        self._batch_index = self.counters.batches
        if is_own(self._context, content):
            self.latest_checkpoint = storage_id

    def start(self) -> None:
        """Begins to read the training data. Afterwards only the training itself draws random numbers."""
        context = self._context
        for model in context.models:
            model.train()
        context.reset_reducers()
        self._stream = self._data.stream()
        if self._is_chief:
            self._train.set_status("training")

    @property
    def counters(self) -> Counters:
        return self.driver.counters

    @property
    def batches_per_epoch(self) -> int | None:
        return self._data.batches_per_epoch

    def state_dict(self) -> dict[str, Any]:
        numbers = {name: value for name, value in self.metrics.items() if isinstance(value, int | float)}
        return {"driver": self.driver.state_dict(), "is_epoch_start": self._is_epoch_start, "metrics": numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.driver.load_state_dict(state["driver"])
        self._is_epoch_start = state["is_epoch_start"]
        self.metrics = state["metrics"]

    def train_batch(self) -> Trained:
        trained, batch = self._next_batch()
        context, index, epoch = self._context, self._batch_index, trained.epoch
        context._begin_batch(index, epoch, self._is_epoch_start, trained.is_epoch_end)
        if self._is_epoch_start:
            self._callbacks.call("on_training_epoch_start", epoch)
        returned = self._train_on(batch, trained)
        context._end_batch()
        for hook in self._batch_hooks:
            hook(epoch, index, returned)
        self._batch_index = index + 1
        self._is_epoch_start = trained.is_epoch_end
        if trained.is_epoch_end:
            self._callbacks.call("on_training_epoch_end", epoch)
        return trained

    def _next_batch(self) -> tuple[BatchOfEpoch, Any]:
        """Returns the next global batch, and this rank's part of it."""
        return next(self._stream)

    def _train_on(self, batch: Any, draw: Any) -> Any:
        """Trains on a batch, and returns what the trial has returned."""
        if self._moves_batches:
            batch = self._context.to_device(batch)
        returned = self._train_batch(batch=batch, epoch_idx=draw.epoch, batch_idx=self._batch_index)
        self._metrics.add(returned, self._batch_index, self._data.num_samples(draw, batch))
        return returned

    def report(self, progress: float) -> None:
        distributed = self._context.distributed
        reducers = self._context._reducers.chosen(for_training=True)
        own = self._metrics.take(), [each.call("per_slot_reduce") for each in reducers]
        self._context.reset_reducers()
        gathered = distributed.allgather(own) if self._has_workload_hooks else distributed.gather(own)
        if gathered is None:
            return
        ranks = [columns for columns, _ in gathered]
        means = reduced(ranks, dict.fromkeys(metric_names(ranks), mean), self._left_out)
        avg_metrics = {**without_none(means), **reduce_across_slots(reducers, [each for _, each in gathered])}
        batch_metrics = means_of_batches(ranks)
        if self._is_chief:
            numbers, others = self._split(avg_metrics)
            self._train.report_training_metrics(self._steps, numbers, batch_metrics)
            self._report_others("training", others)
            self._train.report_progress(progress)
        if self._has_workload_hooks:
            # A stop causes an additional report, so the random draws of hooks must not change the training.
            with rng.kept():
                self._callbacks.call("on_training_workload_end", {**self._progress, **avg_metrics}, batch_metrics)

    def validate(self) -> bool | None:
        if self._is_chief:
            self._train.set_status("validating")
        metrics = self._validator.run(self._batch_index, self.should_stop, self._progress)
        if metrics is None:
            return None
        self.metrics = metrics

        def report() -> bool:
            numbers, others = self._split(metrics)
            is_best = self._best.is_best(numbers)
            self._train.report_validation_metrics(self._steps, numbers)
            self._report_others("validation", others)
            self._train.set_status("training")
            return is_best

        return self._context.distributed.channel.broadcast_outcome(report)

    def save(self) -> None:
        self.latest_checkpoint = self._state.save()

    def explain(self, error: BaseException) -> None:
        """Adds a note to an error of torch about a lost worker of a loader."""
        self._data.explain(error)
        self._validator.explain(error)

    def searched_metric(self) -> Any:
        """Returns the searcher's metric of the last validation."""
        return self._best.searched(self.metrics)

    def best_checkpoint(self) -> str | None:
        """Returns the storage id of the trial's checkpoint with the best validation, or None. Collective."""
        return self._context.distributed.channel.broadcast_outcome(self._best.checkpoint)

    @property
    def _steps(self) -> int:
        return self.counters.batches

    @property
    def _progress(self) -> dict[str, Any]:
        """The progress of the training, as it is reported beside the metrics."""
        counters = self.counters
        return {"batches": counters.batches, "epochs": counters.epochs}

    def _split(self, metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Splits metrics into numbers, to which it adds the progress, and other values that JSON can hold.

        Tensors with one element count as numbers.
        """
        numbers = self._progress
        others: dict[str, Any] = {}
        for name, value in metrics.items():
            try:
                numbers[name] = value if isinstance(value, int | float) else value.item()
            except (AttributeError, TypeError, ValueError, RuntimeError):
                found = as_json(value)
                if isinstance(found, NotJson):
                    self._left_out.say(name, f"it is {found.kind}")
                else:
                    others[name] = found
        return numbers, others

    def _report_others(self, group: str, others: dict[str, Any]) -> None:
        if others:
            self._train.report_metrics(f"{group}_values", self._steps, others)
