"""Metrics that are reduced over all batches and ranks by a rule of the user's."""

from __future__ import annotations

import abc
import enum
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


class Reducer(enum.Enum):
    """The reduction of the values that `evaluate_batch()` returns to one value."""

    AVG = 1
    SUM = 2
    MAX = 3
    MIN = 4


class MetricReducer(abc.ABC):
    """A metric that is not a mean over batches, such as an AUC. Register it with `context.wrap_reducer()`.

    The trial gives it values in a method of its own, such as `update()`.
    """

    @abc.abstractmethod
    def reset(self) -> None:
        """Forgets all values. Called before the first batch, and after each reduction."""

    @abc.abstractmethod
    def per_slot_reduce(self) -> Any:
        """Returns this rank's contribution: an object that can be pickled. Called on every rank, even a single one."""

    @abc.abstractmethod
    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Computes the metric from the contributions of all ranks, in rank order.

        Returns a dictionary of metrics if `wrap_reducer()` was given no name, else a single value.
        """


class FunctionReducer(MetricReducer):
    """A function of all values that were given to `update()`, in the order of the batches."""

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        self._values: list[Any] = []

    def update(self, value: Any) -> None:
        """Call it once a batch, so that the function gets the values of all ranks in the order of the batches."""
        self._values.append(value)

    def reset(self) -> None:
        self._values = []

    def per_slot_reduce(self) -> list[Any]:
        return self._values

    def cross_slot_reduce(self, per_slot_metrics: list[list[Any]]) -> Any:
        nothing = object()
        rounds = itertools.zip_longest(*per_slot_metrics, fillvalue=nothing)
        return self.function([value for values in rounds for value in values if value is not nothing])


@dataclass(frozen=True)
class WrappedReducer:
    """A registered reducer. Its errors name it."""

    reducer: MetricReducer
    name: str | None
    for_training: bool
    for_validation: bool

    def call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self.reducer, method)(*args)
        except Exception as error:
            error.add_note(f"in {method}() of the reducer {self}")
            raise

    def metrics(self, per_slot_metrics: list[Any]) -> dict[str, Any]:
        """Returns the metrics by name.

        Raises `TypeError` if a reducer with a name returns a dictionary, or one without a name anything else.
        """
        reduced = self.call("cross_slot_reduce", per_slot_metrics)
        if self.name is None and not isinstance(reduced, dict):
            raise TypeError(
                f"the reducer {self} returned {type(reduced).__name__}, and has no name: pass a name to "
                "wrap_reducer(), or return a dictionary of metrics"
            )
        if self.name is not None and isinstance(reduced, dict):
            raise TypeError(
                f"the reducer {self} returned a dictionary: leave the name out of wrap_reducer(), or return one value"
            )
        return reduced if self.name is None else {self.name: reduced}

    def __str__(self) -> str:
        what = self.reducer.function if isinstance(self.reducer, FunctionReducer) else type(self.reducer)
        named = "" if self.name is None else f" ({self.name!r})"
        return f"{getattr(what, '__name__', what)}{named}"


class Reducers:
    """The reducers of a trial, in the order in which they were registered."""

    def __init__(self) -> None:
        self._wrapped: list[WrappedReducer] = []

    def add(
        self,
        reducer: Callable[[list[Any]], Any] | MetricReducer,
        name: str | None,
        for_training: bool,
        for_validation: bool,
    ) -> MetricReducer:
        if not isinstance(reducer, MetricReducer):
            if not callable(reducer):
                raise TypeError(f"wrap_reducer() takes a function or a MetricReducer, not {reducer!r}")
            reducer = FunctionReducer(reducer)
        reducer.reset()
        self._wrapped.append(WrappedReducer(reducer, name, for_training, for_validation))
        return reducer

    def chosen(self, for_training: bool) -> list[WrappedReducer]:
        return [each for each in self._wrapped if (each.for_training if for_training else each.for_validation)]

    def reset(self) -> None:
        for each in self._wrapped:
            each.call("reset")

    def reduce(self, for_training: bool, allgather: Callable[[list[Any]], list[list[Any]]]) -> dict[str, Any]:
        """Returns the metrics of all chosen reducers. Collective; exchanges the values of all of them at once."""
        chosen = self.chosen(for_training)
        if not chosen:
            return {}
        return reduce_across_slots(chosen, allgather([each.call("per_slot_reduce") for each in chosen]))


def reduce_across_slots(reducers: Sequence[WrappedReducer], gathered: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Computes the metrics from the contributions of each rank to these reducers."""
    metrics: dict[str, Any] = {}
    for reducer, per_slot_metrics in zip(reducers, zip(*gathered, strict=True), strict=True):
        metrics.update(reducer.metrics(list(per_slot_metrics)))
    return metrics
