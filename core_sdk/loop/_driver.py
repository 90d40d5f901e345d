"""The order of a training: when it trains, validates, saves, reports, and stops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

from core_sdk.loop._schedule import (
    Batch,
    Counters,
    Epoch,
    TrainingClock,
    TrainUnit,
    completed_share,
    is_due,
    is_reached,
)

CheckpointPolicy = Literal["best", "all", "none"]
"""The validations after which a checkpoint is saved: those that are the best so far, all, or none."""


class TrainedBatch(Protocol):
    """A global batch that was trained on."""

    @property
    def num_global(self) -> int:
        """The number of samples of the batch, on all ranks together."""

    @property
    def is_epoch_end(self) -> bool: ...


class DrivenTraining(Protocol):
    """The work that a `Driver` orders. Every rank has one, and all of them get the same calls."""

    def should_stop(self) -> bool:
        """Returns whether to save and end.

        Called once before each batch; it becomes True at the same call on all ranks.
        """

    def train_batch(self) -> TrainedBatch: ...

    def report(self, progress: float) -> None:
        """Reports the metrics of the batches since the last report, and the completed share of the training."""

    def validate(self) -> bool | None:
        """Validates, and reports that. Returns whether the result is the best so far; None if a stop has cut it off."""

    def save(self) -> None: ...


@dataclass(frozen=True)
class Schedule:
    """The periods after which a training validates, saves and reports, apart from its end."""

    validation: TrainUnit | None = None
    checkpoint: TrainUnit | None = None
    reporting: TrainUnit | None = None
    policy: CheckpointPolicy = "best"
    validates_first: bool = False
    """Whether to validate before the first batch of a new training."""

    def __post_init__(self) -> None:
        for name in ("validation", "checkpoint", "reporting"):
            period = getattr(self, name)
            if period is not None and not isinstance(period, TrainUnit):
                raise TypeError(
                    f"the {name} period is {period!r}: give Batch, Epoch, Record or Seconds, such as Batch(100)"
                )
        if self.policy not in get_args(CheckpointPolicy):
            raise ValueError(
                f"the checkpoint policy is {self.policy!r}; it must be one of {', '.join(get_args(CheckpointPolicy))}"
            )


class _Due(NamedTuple):
    """The reasons why the training of batches pauses."""

    is_stopped: bool = False
    validation: bool = False
    checkpoint: bool = False


class TrainingProgress:
    """The amounts that a training has completed, and what it has still to do. Its state belongs in each checkpoint."""

    def __init__(self) -> None:
        self.counts: tuple[int, int, int, float] = Counters()
        self.clock: TrainingClock | None = None
        self.validated_at: int | None = None
        self.saved_at: int | None = None
        self.reported_at = 0
        self.is_validation_owed = False

    @property
    def counters(self) -> Counters:
        return Counters._make(self.counts)

    def state_dict(self) -> dict[str, Any]:
        counters = self.counters
        if self.clock is not None:
            counters = counters._replace(seconds=self.clock.exact())
        return {
            "counters": counters._asdict(),
            "validated_at": self.validated_at,
            "is_validation_owed": self.is_validation_owed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = Counters(**state["counters"])
        self.validated_at = state["validated_at"]
        self.is_validation_owed = state["is_validation_owed"]
        self.saved_at = self.reported_at = self.counters.batches


class Driver:
    """Drives a training to a length, and counts what is completed.

    After a batch at which something is due, it reports, validates and saves, in this order. At the end of the training
    it validates and saves, unless that has been done. Before each batch it reads the stop flag, and saves if it is set.
    If a stop cuts a validation off, the resumed training validates first.
    """

    def __init__(
        self,
        training: DrivenTraining,
        schedule: Schedule,
        progress: TrainingProgress,
        broadcast: Callable[[tuple[float, float]], tuple[float, float]] = lambda value: value,
    ) -> None:
        """`broadcast` returns the chief's value on every rank."""
        self._training = training
        self._schedule = schedule
        self._progress = progress
        self._broadcast = broadcast

    def run(self, length: TrainUnit) -> bool:
        """Trains until `length`, counted from the beginning of the training. Returns whether it got there.

        If the training has that length already, nothing is trained. May be called again with a greater length.
        """
        schedule, progress = self._schedule, self._progress
        units = (length, schedule.validation, schedule.checkpoint, schedule.reporting)
        clock = progress.clock = TrainingClock(units, self._broadcast, progress.counters)
        is_first = schedule.validates_first and progress.validated_at is None and progress.counters.batches == 0
        if (is_first or progress.is_validation_owed) and not self._validate():
            return self._stop(length)
        while not is_reached(length, progress.counters):
            due = self._train_until_due(length, clock)
            self._report(length)
            if due.is_stopped:
                return self._stop(length)
            if due.validation and not self._validate():
                return self._stop(length)
            if due.checkpoint:
                self._save()
        if progress.validated_at != progress.counters.batches and not self._validate():
            return self._stop(length)
        self._save()
        return True

    def _train_until_due(self, length: TrainUnit, clock: TrainingClock) -> _Due:
        """Trains until something is due, `length` is reached or the stop flag is set. Returns what is due."""
        training, schedule, progress = self._training, self._schedule, self._progress
        units = (length, schedule.validation, schedule.checkpoint, schedule.reporting)
        next_look, looks_at_epochs = _next_look(units, progress.counters)
        should_stop, train_batch = training.should_stop, training.train_batch
        batches, epochs, records, seconds = before = progress.counters
        while not should_stop():
            trained = train_batch()
            batches += 1
            records += trained.num_global
            is_epoch_end = trained.is_epoch_end
            if is_epoch_end:
                epochs += 1
            if clock.is_read:
                seconds = clock.after_batch(batches)
            progress.counts = batches, epochs, records, seconds
            if batches < next_look and not (is_epoch_end and looks_at_epochs):
                continue
            after = progress.counters
            due = [is_due(unit, before, after) for unit in units[1:]]
            if any(due) or is_reached(length, after):
                return _Due(validation=due[0], checkpoint=due[1])
            before = after
            next_look, _ = _next_look(units, after)
        return _Due(is_stopped=True)

    def _report(self, length: TrainUnit) -> None:
        counters = self._progress.counters
        if self._progress.reported_at != counters.batches:
            self._progress.reported_at = counters.batches
            self._training.report(completed_share(length, counters))

    def _validate(self) -> bool:
        """Validates. Returns False if a stop has cut the validation off."""
        is_best = self._training.validate()
        if is_best is None:
            self._progress.is_validation_owed = True
            return False
        self._progress.is_validation_owed = False
        self._progress.validated_at = self._progress.counters.batches
        if self._schedule.policy == "all" or (self._schedule.policy == "best" and is_best):
            self._save()
        return True

    def _save(self) -> None:
        if self._progress.saved_at != self._progress.counters.batches:
            self._training.save()
            self._progress.saved_at = self._progress.counters.batches

    def _stop(self, length: TrainUnit) -> bool:
        self._report(length)
        self._save()
        return False


def _next_look(units: tuple[TrainUnit | None, ...], counters: Counters) -> tuple[float, bool]:
    """Returns the batch before which nothing is due except at epochs' ends, and whether something may be due there."""
    next_look, looks_at_epochs = math.inf, False
    for unit in units:
        if isinstance(unit, Epoch):
            looks_at_epochs = True
        elif isinstance(unit, Batch) and isinstance(unit.value, int):
            period = max(unit.value, 1)
            next_look = min(next_look, (counters.batches // period + 1) * period)
        elif unit is not None:
            next_look = counters.batches + 1
    return next_look, looks_at_epochs
