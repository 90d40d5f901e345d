"""Schedules of a training: periods, or counts, of batches, epochs, records or seconds."""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Callable, Collection, Container, Iterable
from typing import Any, NamedTuple


class Counters(NamedTuple):
    """The amounts that a training has completed, on all ranks together and over all its attempts."""

    batches: int = 0
    """The number of global batches; each consists of the parts of all ranks."""
    epochs: int = 0
    """The number of whole epochs."""
    records: int = 0
    """The number of samples."""
    seconds: float = 0.0
    """The time by the chief's clock. The time between two attempts does not count."""


class TrainUnit(abc.ABC):
    """A period, if the value is a number, or a schedule of counts, if it is a container.

    `Batch(100)` is due at the batches 100, 200, 300 and so on, `Batch([1, 10])` at the batches 1 and 10. A number below
    1 is due each time. As the length of a training, the number is a total.
    """

    def __init__(self, value: int | Container[int]) -> None:
        """Raises `TypeError` for anything but an integer or a container of integers."""
        if isinstance(value, bool | str) or not isinstance(value, int | Container):
            raise TypeError(f"{type(self).__name__}({value!r}): give an integer, or a container of integers")
        self.value: Any = value
        """The period, the length or the container."""

    @staticmethod
    @abc.abstractmethod
    def count(counters: Counters) -> float:
        """Returns the completed amount in this unit."""

    def is_due(self, before: Counters, after: Counters) -> bool:
        """Returns whether one of the counts was reached after `before`, up to `after`."""
        start, end = self.count(before), self.count(after)
        if isinstance(self.value, Container):
            return self._has_count_between(start, end)
        if self.value <= 0:
            return end > start
        return bool(end // self.value > start // self.value)

    def _has_count_between(self, start: float, end: float) -> bool:
        return any(count in self.value for count in range(int(start) + 1, int(end) + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainUnit) and type(self) is type(other) and bool(self.value == other.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Batch(TrainUnit):
    """Counts global batches."""

    @staticmethod
    def count(counters: Counters) -> int:
        return counters.batches


class Epoch(TrainUnit):
    """Counts whole epochs. So it is due only after the last batch of an epoch."""

    @staticmethod
    def count(counters: Counters) -> int:
        return counters.epochs


class Record(TrainUnit):
    """Counts samples. A count is reached by the batch that contains the sample of that number."""

    @staticmethod
    def count(counters: Counters) -> int:
        return counters.records


class Seconds(TrainUnit):
    """Counts seconds, which may be fractions. A count is reached by the first batch that ends after it.

    A number of 0 or less is due after each batch.
    """

    def __init__(self, value: float | Collection[float]) -> None:
        """Raises `TypeError` for anything but a number or a collection of numbers."""
        if isinstance(value, bool | str) or not isinstance(value, int | float | Collection):
            raise TypeError(f"Seconds({value!r}): give a number, or a list of numbers")
        self.value = value

    @staticmethod
    def count(counters: Counters) -> float:
        return counters.seconds

    def next_due(self, seconds: float) -> float:
        """Returns the first count after `seconds`; infinity if there is none."""
        if isinstance(self.value, Collection):
            return min((float(count) for count in self.value if count > seconds), default=math.inf)
        return seconds if self.value <= 0 else float((seconds // self.value + 1) * self.value)

    def _has_count_between(self, start: float, end: float) -> bool:
        return any(start < count <= end for count in self.value)


def is_due(unit: TrainUnit | None, before: Counters, after: Counters) -> bool:
    """Returns whether a count of `unit` was reached after `before`, up to `after`. None is never due."""
    return unit is not None and unit.is_due(before, after)


def check_length(unit: TrainUnit) -> None:
    """Raises `TypeError` or `ValueError` unless `unit` can be the length of a training."""
    if not isinstance(unit, TrainUnit):
        raise TypeError(
            f"the length of a training is {unit!r}: give a number of Batch, Epoch, Record or Seconds, such as Epoch(10)"
        )
    if not isinstance(unit.value, int | float):
        raise TypeError(f"the length of a training is {unit!r}, a schedule: give one number")
    if unit.value <= 0:
        raise ValueError(f"the length of a training is {unit!r}: give a number above 0")


def is_reached(length: TrainUnit, counters: Counters) -> bool:
    """Returns whether a training of this length is complete."""
    return bool(length.count(counters) >= length.value)


def completed_share(length: TrainUnit, counters: Counters) -> float:
    """Returns the completed share of a training of this length, from 0 to 1."""
    return min(1.0, length.count(counters) / float(length.value))


class TrainingClock:
    """The seconds of a training by the chief's clock, equal on every rank.

    Ranks must agree on what is due, but should not communicate after each batch. So the clock moves only at some
    batches, at which the chief sends its time, and the number of the batch at which it will send it again. That batch
    is the one after half of the time to the next count of `units`, at the current speed. So a count is noticed within
    one or two batches, after about ten messages. If the batches become slower by a factor, it is noticed later by that
    factor.
    """

    def __init__(
        self,
        units: Iterable[TrainUnit | None],
        broadcast: Callable[[tuple[float, float]], tuple[float, float]],
        counters: Counters = Counters(),  # noqa: B008
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`units` and `counters` must be equal on all ranks. `broadcast` returns the chief's value on every rank."""
        self._units = [unit for unit in units if isinstance(unit, Seconds)]
        self.is_read = bool(self._units)
        """Whether anything depends on the clock. Otherwise it need not be asked after each batch."""
        self._broadcast = broadcast
        self._now = now
        self._start = now() - counters.seconds
        self._seconds = counters.seconds
        self._batches = counters.batches
        self._next_batches: float = counters.batches + 1 if self._units else math.inf

    def after_batch(self, batches: int) -> float:
        """Returns the seconds for `Counters` after so many batches. Collective, though it communicates rarely."""
        if batches >= self._next_batches:
            seconds, self._next_batches = self._broadcast(self._look(batches))
            self._seconds, self._batches = seconds, batches
        return self._seconds

    def exact(self) -> float:
        """Returns the seconds by the clock of this rank. The chief's are stored in a checkpoint."""
        return self._now() - self._start

    def _look(self, batches: int) -> tuple[float, float]:
        seconds = self.exact()
        rest = min(unit.next_due(seconds) for unit in self._units) - seconds
        seconds_per_batch = (seconds - self._seconds) / (batches - self._batches)
        if math.isinf(rest):
            return seconds, math.inf
        return seconds, batches + max(1, int(rest / 2 / max(seconds_per_batch, 1e-9)))
