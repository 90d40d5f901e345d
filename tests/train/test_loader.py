"""Loaders and datasets that are divided among the workers of a training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from distributed.ranks import Threads
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

from core_sdk import train
from core_sdk.core import DistributedContext
from core_sdk.loop import resumable
from core_sdk.train import ScalingConfig, TorchTrainer
from core_sdk.train._worker.epochs import Epochs
from core_sdk.train._worker.shards import DatasetShard
from core_sdk.train.torch._loader import PreparedLoader

CPU = torch.device("cpu")


def in_a_training(function: Any) -> Any:
    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0)).fit().return_value


def prepared(distributed: DistributedContext, batch_size: int = 2) -> PreparedLoader:
    loader: DataLoader[Any] = DataLoader(range(24), batch_size=batch_size, shuffle=True)  # type: ignore[arg-type]
    epochs = Epochs(resumable(loader, seed=1, distributed=distributed))
    return PreparedLoader(loader, epochs, CPU, is_ahead=False)


def test_any_number_of_workers_has_the_same_global_batches(threads: Threads) -> None:
    """Any number of workers shares the same global batches, and each epoch has a different order."""

    def script(distributed: DistributedContext) -> list[list[int]]:
        loader = prepared(distributed, 12 // distributed.size)
        return [batch.tolist() for _ in range(2) for batch in loader]

    alone, *_ = threads.run(1, script)
    parts = threads.run(3, script)

    assert [[each for part in batch for each in part] for batch in zip(*parts, strict=True)] == alone
    assert sorted(alone[0] + alone[1]) == sorted(alone[2] + alone[3]) == list(range(24))
    assert alone[:2] != alone[2:]


def test_a_loader_goes_on_with_the_very_next_sample_on_another_number_of_workers(threads: Threads) -> None:
    """In mid-epoch, a loader resumes at the very next sample on another number of workers."""

    def all_of(distributed: DistributedContext) -> list[int]:
        loader = prepared(distributed, 4)
        return [each for _ in range(2) for batch in loader for each in batch.tolist()]

    def first(distributed: DistributedContext) -> tuple[list[int], dict[str, Any]]:
        loader = prepared(distributed, 2)
        loader.sampler.set_epoch(0)
        batches = iter(loader)
        return [each for _ in range(2) for each in next(batches).tolist()], loader.state_dict()

    def rest(distributed: DistributedContext) -> list[int]:
        loader = prepared(distributed, 4)
        loader.load_state_dict(state)
        seen = []
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            seen += [each for batch in loader for each in batch.tolist()]
        return seen

    (expected,) = threads.run(1, all_of)
    (left, state), (right, _) = threads.run(2, first)
    (after,) = threads.run(1, rest)

    assert sorted(left + right) == sorted(expected[:8])
    assert after == expected[8:]


def test_an_epoch_that_was_broken_off_is_not_gone_on_with() -> None:
    """Each iteration of a loader is an epoch of its own, so that a loop left early does not resume, as in torch."""

    def function() -> list[list[int]]:
        loader = train.torch.prepare_data_loader(DataLoader(range(6), batch_size=2))  # type: ignore[arg-type]
        seen = []
        for _ in range(3):
            for batch in loader:
                seen.append(batch.tolist())
                break
        loader.sampler.set_epoch(7)
        return [*seen, *(batch.tolist() for batch in loader)]

    assert in_a_training(function) == [[0, 1], [0, 1], [0, 1], [0, 1], [2, 3], [4, 5]]


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def doubled(samples: list[int]) -> list[int]:
    return [2 * each for each in samples]


def test_every_option_of_a_loader_stays() -> None:
    """A prepared loader keeps all options, also those that Ray Train loses: the batch sampler, options of workers."""

    def function() -> tuple[Any, ...]:
        by_batches = DataLoader(Numbers(), batch_sampler=[[0, 1, 2], [3], [4, 5, 6, 7]], collate_fn=doubled)
        workers: DataLoader[int] = DataLoader(
            Numbers(), batch_size=4, num_workers=1, prefetch_factor=3, persistent_workers=True, drop_last=True
        )
        batched, working = map(train.torch.prepare_data_loader, (by_batches, workers))
        options = working.prefetch_factor, working.persistent_workers, working.batch_size, len(working)
        return list(batched), [batch.tolist() for batch in working], options

    assert in_a_training(function) == (
        [[0, 2, 4], [6], [8, 10, 12, 14]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        (3, True, 4, 2),
    )


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def test_a_loader_of_its_own_order_is_left_as_it_is() -> None:
    """A loader keeps its order if it has a DistributedSampler, is not to be divided, or has one worker only."""

    def function() -> list[list[int]]:
        sampler: DistributedSampler[int] = DistributedSampler(Numbers(), num_replicas=2, rank=1, shuffle=False)
        loaders = (
            train.torch.prepare_data_loader(DataLoader(Numbers(), batch_size=2, sampler=sampler)),
            train.torch.prepare_data_loader(DataLoader(Numbers(), batch_size=4), add_dist_sampler=False),
            train.torch.prepare_data_loader(DataLoader(Stream(), batch_size=4), move_to_device=False),
        )
        loaders[0].sampler.set_epoch(1)
        with pytest.raises(ValueError, match="keeps its own order"):
            loaders[1].state_dict()
        return [[each for batch in loader for each in batch.tolist()] for loader in loaders]

    assert in_a_training(function) == [[1, 3, 5, 7], list(range(8)), list(range(4))]


def test_what_is_no_loader_is_refused() -> None:
    """prepare_data_loader() refuses an object that is no DataLoader with an error that names its type."""

    def function() -> None:
        with pytest.raises(TypeError, match="takes a DataLoader of torch, not list"):
            train.torch.prepare_data_loader([1, 2])  # type: ignore[arg-type]

    in_a_training(function)


def test_a_dataset_is_divided_and_resumed_exactly(threads: Threads) -> None:
    """A dataset is divided into equally many batches per worker, and resumes exactly on another number of workers."""
    numbers = list(range(16))

    def first(distributed: DistributedContext) -> tuple[list[int], dict[str, Any]]:
        shard = DatasetShard(numbers, distributed, CPU)
        batches = shard.iter_torch_batches(batch_size=2, shuffle=True)
        return [each for _ in range(2) for each in next(batches).tolist()], shard.state_dict()

    def rest(distributed: DistributedContext) -> list[int]:
        shard = DatasetShard(numbers, distributed, CPU)
        shard.load_state_dict(state)
        return [each for batch in shard.iter_torch_batches(batch_size=4, shuffle=True) for each in batch.tolist()]

    (left, state), (right, _) = threads.run(2, first)
    (after,) = threads.run(1, rest)

    assert sorted(left + right + after) == numbers


def test_an_iterable_without_a_length_is_divided_and_resumed(threads: Threads) -> None:
    """An iterable without a length is divided and resumed like a dataset, also on another number of workers."""

    class WithoutLength:
        def __iter__(self) -> Iterator[int]:
            return iter(range(9))

    def script(distributed: DistributedContext) -> tuple[list[list[int]], dict[str, Any]]:
        shard = DatasetShard(WithoutLength(), distributed, CPU)
        epochs = [list(shard.iter_rows()) for _ in range(2)]
        batches = shard.iter_batches(batch_size=1)
        next(batches)
        return epochs, shard.state_dict()

    def rest(distributed: DistributedContext) -> list[int]:
        shard = DatasetShard(WithoutLength(), distributed, CPU)
        shard.load_state_dict(state)
        return [each for batch in shard.iter_torch_batches(batch_size=3, num_workers=2) for each in batch.tolist()]

    (left, state), (right, _) = threads.run(2, script)
    (after,) = threads.run(1, rest)

    assert left == [[0, 2, 4, 6, 8]] * 2
    assert right == [[1, 3, 5, 7, 8]] * 2
    assert after == list(range(2, 9))


def test_a_dataset_that_is_none_is_refused_by_name() -> None:
    """A dataset that cannot be divided, and a name that the trainer was not given, are refused by name."""

    def function() -> None:
        with pytest.raises(TypeError, match="has neither"):
            train.get_dataset_shard("number")
        with pytest.raises(KeyError, match="no dataset 'train'; datasets are: number, numbers"):
            train.get_dataset_shard()
        assert train.get_dataset_shard("numbers") is train.get_dataset_shard("numbers")

    TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0), datasets={"number": 3, "numbers": [1, 2]}).fit()


def test_a_shard_of_other_data_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The position of a dataset's shard has a fingerprint of the whole dataset."""
    shard = DatasetShard([*range(8)], None, CPU)
    next(shard.iter_batches(batch_size=2))
    state = shard.state_dict()

    for last in (7, 9):
        resumed = DatasetShard([*range(7), last], None, CPU)
        resumed.load_state_dict(state)
        next(resumed.iter_batches(batch_size=2))
        assert len(caplog.records) == (last != 7)
