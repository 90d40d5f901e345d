"""Metrics of batches become means over samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from core_sdk.pytorch._fitting.metrics import (
    BatchMetrics,
    Columns,
    LeftOut,
    mean,
    means_of_batches,
    metric_names,
    reduced,
)


def taken(*batches: Any, num_samples: int = 1) -> Columns:
    metrics = BatchMetrics("train_batch")
    for index, returned in enumerate(batches):
        metrics.add(returned, index, num_samples)
    return metrics.take()


def test_numbers_tensors_and_none_are_read_as_they_are() -> None:
    """Numbers, bools, tensors and None may be mixed in one metric."""
    columns = taken({"a": 1}, {"a": torch.tensor(0.5)}, {"a": None}, {"a": torch.tensor([2])}, {"a": True})

    assert columns.values == {"a": [1, 0.5, None, 2, 1]}


def test_a_tensor_alone_is_the_loss() -> None:
    """A single tensor that is returned is reported as the loss."""
    assert taken(torch.tensor(3.0)).values == {"loss": [3.0]}


def test_many_batches_keep_their_order() -> None:
    """The values of many batches keep their order."""
    columns = taken(*({"a": torch.tensor(index)} for index in range(700)))

    assert columns.values["a"] == list(range(700))


def test_a_tensor_that_is_changed_in_place_later_keeps_its_value() -> None:
    """A tensor that is changed in place later keeps its value at the time of the report."""
    total = torch.zeros(())
    metrics = BatchMetrics("train_batch")

    for index in range(3):
        total += 1
        metrics.add({"total": total}, index, 1)

    assert metrics.take().values == {"total": [1, 2, 3]}


def test_values_are_given_once() -> None:
    """take() returns the values once, and later batches begin a new column."""
    metrics = BatchMetrics("train_batch")
    metrics.add({"a": 1}, 0, 4)
    metrics.take()
    metrics.add({"a": 2}, 1, 4)

    assert metrics.take() == Columns({"a": [2]}, [4])


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"a": 1}, r"train_batch\(\) returned for batch 1 lack 'b'"),
        ({"a": 1, "b": 2, "c": 3}, "add 'c'"),
        ({"a": 1, "c": 3}, "lack 'b' and add 'c'"),
    ],
)
def test_a_missing_key_is_named_with_its_batch(second: dict[str, int], words: str) -> None:
    """A batch that lacks a metric, or adds one, is named with what to return."""
    with pytest.raises(ValueError, match=words + r".*None is the value where a batch has none"):
        taken({"a": 1, "b": 2}, second)


def test_keys_may_come_in_another_order() -> None:
    """Metrics may come in another order in each batch."""
    assert taken({"a": 1, "b": 2}, {"b": 4, "a": 3}).values == {"a": [1, 3], "b": [2, 4]}


def test_values_that_are_no_numbers_are_reduced_element_by_element() -> None:
    """Tensors, arrays, lists and nested dicts; batches keep only their numbers."""
    first = {"a": 1, "t": torch.tensor([1.0, 3.0]), "n": np.ones((1, 2)), "d": {"x": [1.0], "y": torch.tensor(2.0)}}
    second = {"a": 3, "t": torch.tensor([3.0, 5.0]), "n": np.zeros((1, 2)), "d": {"x": [3.0], "y": torch.tensor(4.0)}}
    columns = taken(first, second)

    means = reduced([columns], dict.fromkeys(columns.values, mean), LeftOut())

    assert means == {"a": 2.0, "t": [2.0, 4.0], "n": [[0.5, 0.5]], "d": {"x": [2.0], "y": 3.0}}
    assert means_of_batches([columns]) == [{"a": 1}, {"a": 3}]
    assert means_of_batches([columns, columns]) == [{"a": 1.0}, {"a": 3.0}]


def test_values_that_have_no_mean_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Metrics without a mean are left out with one warning per name."""
    columns = taken({"a": 1, "t": torch.zeros(3), "o": object()}, {"a": 1, "t": torch.zeros(2), "o": object()})
    left_out = LeftOut()

    for _ in range(2):
        assert reduced([columns], dict.fromkeys(columns.values, mean), left_out) == {"a": 1}

    assert [record.getMessage().partition(". ")[0] for record in caplog.records] == [
        "the metric 't' is not reported: its values for several batches have different shapes, or are no numbers",
        "the metric 'o' is not reported: it is a object",
    ]


def test_anything_but_a_dict_is_refused() -> None:
    """Metrics that are not a dict or a tensor are refused."""
    with pytest.raises(TypeError, match=r"train_batch\(\) returned a float; it must return a dict of metrics, or"):
        taken(0.5)


def test_the_mean_is_over_samples() -> None:
    """The mean of a metric is weighted by the number of samples per batch."""
    means = [sum(range(8)) / 8, sum(range(8, 16)) / 8, sum(range(16, 20)) / 4]

    assert mean(means, [8, 8, 4]) == 9.5


def test_the_mean_of_one_batch_is_its_value() -> None:
    """The mean of a single batch is exactly its value."""
    assert mean([0.1], [3]) == 0.1


def test_nan_stays_nan() -> None:
    """The mean of values with NaN is NaN."""
    assert math.isnan(mean([math.nan, 1.0], [4, 2]))


def test_fillers_and_none_do_not_count() -> None:
    """Batches that only repeat another rank's samples, and None, are not part of a mean."""
    ranks = [
        Columns({"a": [1.0, 3.0], "b": [None, None]}, [2, 1]),
        Columns({"a": [2.0, math.nan], "b": [None, 1]}, [2, 0]),
    ]

    assert reduced(ranks, {"a": mean, "b": mean}, LeftOut()) == {"a": 9 / 5, "b": None}
    assert reduced(ranks, {"a": lambda values, _: max(values)}, LeftOut()) == {"a": 3.0}


def test_each_batch_has_its_mean_over_the_ranks() -> None:
    """Each batch's metric is its mean over the ranks."""
    first, second = Columns({"a": [1.0, 2.0]}, [4, 4]), Columns({"a": [3.0, 8.0]}, [4, 2])

    assert means_of_batches([first]) == [{"a": 1.0}, {"a": 2.0}]
    assert means_of_batches([first, second]) == [{"a": 2.0}, {"a": 4.0}]


def test_ranks_that_return_different_metrics_are_refused() -> None:
    """Ranks that return different metrics are refused, except ranks without batches."""
    with pytest.raises(ValueError, match=r"rank 1 has other metrics than the ranks before it: b"):
        metric_names([Columns({"a": [1]}, [1]), Columns({"a": [1], "b": [1]}, [1])])

    assert metric_names([Columns({}, []), Columns({"a": [1]}, [1])]) == ["a"]
