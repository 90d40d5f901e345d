"""Metrics that are reduced over batches and ranks by the user's own rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from core_sdk import pytorch
from core_sdk.pytorch._context import run_of


class Mean(pytorch.MetricReducer):
    """A reducer that computes the mean."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def reset(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, values: list[float]) -> None:
        self.total += sum(values)
        self.count += len(values)

    def per_slot_reduce(self) -> tuple[float, int]:
        return self.total, self.count

    def cross_slot_reduce(self, per_slot_metrics: list[tuple[float, int]]) -> Any:
        totals, counts = zip(*per_slot_metrics, strict=True)
        return sum(totals) / sum(counts)


@pytest.fixture
def context() -> Iterator[pytorch.PyTorchTrialContext]:
    with pytorch.init() as context:
        yield context


def test_reducers_give_metrics_by_their_names(context: pytorch.PyTorchTrialContext) -> None:
    """A class of the user's, and functions of all values, one of which has several metrics."""
    mean = context.wrap_reducer(Mean(), name="mean")
    largest = context.wrap_reducer(max, name="largest")
    both = context.wrap_reducer(lambda values: {"first": values[0], "last": values[-1]})

    for values in ([1.0, 2.0], [6.0]):
        mean.update(values)
        largest.update(values[-1])
        both.update(values)

    expected = {"mean": 3.0, "largest": 6.0, "first": [1.0, 2.0], "last": [6.0]}
    assert context.reduce_metrics(for_training=True) == expected


def test_a_reducer_may_be_for_training_or_for_validation_only(context: pytorch.PyTorchTrialContext) -> None:
    """A reducer for training only, or for validation only, has no metric in the other."""
    context.wrap_reducer(len, name="trained", for_validation=False)
    context.wrap_reducer(len, name="validated", for_training=False)

    assert context.reduce_metrics(for_training=True) == {"trained": 0}
    assert context.reduce_metrics(for_training=False) == {"validated": 0}


def test_reducers_forget_their_values_when_they_are_reset(context: pytorch.PyTorchTrialContext) -> None:
    """reset_reducers() clears the values of reducers, even those from before the registration."""
    used = Mean()
    used.update([5.0])
    reducer = context.wrap_reducer(used, name="mean")
    reducer.update([1.0])

    assert context.reduce_metrics(for_training=True) == {"mean": 1.0}
    context.reset_reducers()
    reducer.update([2.0])
    assert context.reduce_metrics(for_training=True) == {"mean": 2.0}


def test_values_of_several_ranks_can_be_reduced_by_hand(context: pytorch.PyTorchTrialContext) -> None:
    """Values gathered from several ranks can be reduced by an explicit call."""
    context.wrap_reducer(Mean(), name="mean")
    context.wrap_reducer(list, name="all")
    reducers = run_of(context).reducers.chosen(for_training=True)

    metrics = context.run_cross_slot_reduction(reducers, [[(1.0, 1), [1, 3]], [(8.0, 2), [2]]])

    assert metrics == {"mean": 3.0, "all": [1, 2, 3]}


def test_a_failing_reducer_is_named(context: pytorch.PyTorchTrialContext) -> None:
    """A reducer that fails is named in a note to its error."""
    context.wrap_reducer(Mean(), name="mean")

    with pytest.raises(ZeroDivisionError) as raised:
        context.reduce_metrics(for_training=True)

    assert raised.value.__notes__ == ["in cross_slot_reduce() of the reducer Mean ('mean')"]


def test_a_name_and_a_dictionary_exclude_each_other(context: pytorch.PyTorchTrialContext) -> None:
    """A reducer needs a name unless it returns a dictionary, and may not have both."""
    context.wrap_reducer(lambda values: 1.0, for_validation=False)
    context.wrap_reducer(dict, name="mapping", for_training=False)

    with pytest.raises(TypeError, match="has no name: pass a name"):
        context.reduce_metrics(for_training=True)
    with pytest.raises(TypeError, match=r"the reducer dict \('mapping'\) returned a dictionary"):
        context.reduce_metrics(for_training=False)
    with pytest.raises(TypeError, match="takes a function or a MetricReducer, not 3"):
        context.wrap_reducer(3, name="three")  # type: ignore[call-overload]
