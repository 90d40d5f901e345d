"""The loader that a trial returns, and its batches of nested tensors."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler, TensorDataset

from core_sdk import pytorch

CPU = torch.device("cpu")
META = torch.device("meta")


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def drawn(loader: Any, limit: int = 100) -> list[list[int]]:
    return [batch[0].tolist() for batch, _ in zip(loader, range(limit), strict=False)]


def test_a_loader_is_one_of_torch() -> None:
    """pytorch.DataLoader is a torch DataLoader and works without a Trainer."""
    loader = pytorch.DataLoader(numbers(5), batch_size=2)

    assert isinstance(loader, torch.utils.data.DataLoader)
    assert drawn(loader) == [[0, 1], [2, 3], [4]]
    assert len(loader) == 3


def test_a_loader_can_be_repeated_divided_and_skipped_by_hand() -> None:
    """get_data_loader() repeats, divides and skips, in this order."""
    loader = pytorch.DataLoader(numbers(5), batch_size=1)

    assert drawn(loader.get_data_loader(num_replicas=2, rank=1)) == [[1], [3]]
    assert drawn(loader.get_data_loader(repeat=True, num_replicas=2, rank=1, skip=1), 4) == [[3], [0], [2], [4]]
    assert drawn(loader.get_data_loader(skip=3)) == [[3], [4]]


def test_a_loader_keeps_all_options() -> None:
    """A loader keeps its batch sampler and collate function."""
    loader = pytorch.DataLoader(
        numbers(4), batch_sampler=BatchSampler(SequentialSampler(range(4)), 3, True), collate_fn=lambda samples: samples
    )

    (batch,) = loader.get_data_loader()

    assert [sample[0].item() for sample in batch] == [0, 1, 2]


def test_a_loader_without_a_known_order_is_refused() -> None:
    """An IterableDataset and batch_size=None are refused with an alternative."""

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(ValueError, match=r"Stream is an IterableDataset.*disable_dataset_reproducibility_checks"):
        pytorch.DataLoader(Stream())
    with pytest.raises(ValueError, match="batch_size is None"):
        pytorch.DataLoader(numbers(3), batch_size=None)


class Pair(NamedTuple):
    x: torch.Tensor
    y: int


class Output(OrderedDict[str, Any]):
    """A dict subclass, as models return."""


def test_nested_data_is_moved_in_the_containers_that_it_has() -> None:
    """Tensors and arrays in nested data are moved, and containers keep their types."""
    x = torch.ones(2)
    data = {"a": [x, (x, Pair(x, 3))], "b": np.ones(2, dtype=np.float32), "c": Output(d=x)}

    moved = pytorch.to_device(data, META)

    assert moved["a"][0].device == META
    assert isinstance(moved["a"], list)
    assert isinstance(moved["a"][1], tuple)
    assert isinstance(moved["a"][1][1], Pair)
    assert moved["a"][1][1].x.device == META
    assert (moved["b"].device, moved["b"].dtype) == (META, torch.float32)
    assert isinstance(moved["c"], Output)
    assert moved["c"]["d"].device == META


def test_what_moves_itself_is_asked_to() -> None:
    """An object with a `to` method is moved by it, even if it is a tuple."""
    packed = pack_sequence([torch.ones(2), torch.ones(1)])

    moved = pytorch.to_device([packed], CPU)

    assert isinstance(moved[0], PackedSequence)


def test_what_cannot_be_moved_is_warned_of_once_per_type(caplog: pytest.LogCaptureFixture) -> None:
    """Data that cannot be moved stays as it is, with one warning per type."""
    warned: set[type] = set()
    texts = np.array(["a"])

    with caplog.at_level(logging.WARNING):
        moved = pytorch.to_device({"a": "text", "b": ["more"], "c": texts, "d": 3}, CPU, warned)

    assert moved == {"a": "text", "b": ["more"], "c": texts, "d": 3}
    assert [message.split(",")[0] for message in caplog.messages] == [
        "a batch holds str", "a batch holds ndarray", "a batch holds int"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "batch",
    [torch.ones(3, 2), np.ones((3, 2)), [torch.ones(3), torch.ones(1)], {"x": (torch.ones(3),)}, (np.ones(3),)],
)
def test_the_length_of_a_batch_is_that_of_its_first_tensor(batch: Any) -> None:
    """The length of a batch is its first tensor's, at any depth."""
    assert pytorch.data_length(batch) == 3


def test_a_batch_without_a_tensor_has_no_length() -> None:
    """A batch without a tensor has no length, and the error names the method to override."""
    with pytest.raises(ValueError, match="the batch is empty"):
        pytorch.data_length({"x": []})
    with pytest.raises(TypeError, match=r"override get_batch_length\(\)"):
        pytorch.data_length(["text"])


def test_samplers_build_on_each_other() -> None:
    """Samplers for shuffling, repeating, dividing and skipping can be combined."""
    samplers = pytorch.samplers
    shuffled = samplers.ReproducibleShuffleSampler(range(6), seed=7)
    again = samplers.ReproducibleShuffleSampler(range(6), seed=7)
    rounds = [list(shuffled), list(shuffled)]

    assert sorted(rounds[0]) == list(range(6))
    assert rounds[0] != rounds[1]
    own = samplers.DistributedSampler(samplers.RepeatSampler(again), num_workers=2, rank=1)
    batches = iter(samplers.SkipBatchSampler(BatchSampler(own, 2, False), skip=1))
    everything = rounds[0] + rounds[1]
    assert [next(batches), next(batches)] == [everything[5:8:2], everything[9:12:2]]
    assert (len(shuffled), len(own)) == (6, 3)
    assert list(samplers.SkipSampler(range(3), 2)) == [2]
    assert len(samplers.SkipSampler(range(3), 2)) == 3


@pytest.mark.parametrize(("size", "seed"), [(6, 7), (1, 0), (130, 2**32 - 1)])
def test_a_reproducible_shuffle_has_the_order_of_determined(size: int, seed: int) -> None:
    """ReproducibleShuffleSampler has Determined's order in every epoch."""
    generator = np.random.RandomState(seed)
    expected = []
    for _ in range(4):
        expected.append(list(range(size)))
        generator.shuffle(expected[-1])
    sampler = pytorch.samplers.ReproducibleShuffleSampler(range(size), seed)

    assert [list(sampler) for _ in range(3)] == expected[:3]
    for epoch in (1, 3, 0):
        sampler.set_epoch(epoch)
        assert list(sampler) == expected[epoch]


def test_batches_are_sampled_as_samples_are() -> None:
    """Batch samplers divide, repeat and shuffle whole batches."""
    samplers = pytorch.samplers
    batches = [[0, 1], [2, 3], [4]]

    divided = [samplers.DistributedBatchSampler(batches, 2, rank) for rank in range(2)]

    assert [list(each) for each in divided] == [[[0, 1], [4]], [[2, 3]]]
    assert [len(each) for each in divided] == [2, 1]
    assert isinstance(divided[0], BatchSampler)
    repeated = iter(samplers.RepeatBatchSampler(batches))
    assert [next(repeated) for _ in range(4)] == [*batches, [0, 1]]
    assert sorted(samplers.ReproducibleShuffleBatchSampler(batches, 3)) == batches
    with pytest.raises(ValueError, match="rank is 2 of 2"):
        samplers.DistributedBatchSampler(batches, 2, 2)
    with pytest.raises(TypeError, match="has no length"):
        len(samplers.RepeatSampler(iter(batches)))
