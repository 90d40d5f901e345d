"""Loaders that repeat, divide and skip by themselves, as trials for Determined build them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from pytorch.trials import LineTrial, dataset
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data.distributed import DistributedSampler as TorchDistributedSampler

from core_sdk.core import DistributedContext
from core_sdk.loop import resumable
from core_sdk.pytorch import (
    Batch,
    DataLoader,
    PyTorchTrialContext,
    Trainer,
    adapt_batch_sampler,
    init,
    samplers,
)

MakeLoader = Callable[[PyTorchTrialContext], Any]
DATASET = dataset()
NUMBERS: Any = torch.arange(8)


def shuffled_batches(size: int = 5) -> BatchSampler:
    return BatchSampler(RandomSampler(DATASET), size, drop_last=False)


def in_the_order_of_the_guide(context: PyTorchTrialContext) -> Any:
    """Builds the guide's loader: shuffle, repeat, divide, make batches, skip."""
    sampler: Any = samplers.ReproducibleShuffleSampler(SequentialSampler(DATASET), seed=3)
    sampler = samplers.RepeatSampler(sampler)
    sampler = samplers.DistributedSampler(sampler, context.distributed.size, context.distributed.rank)
    batch_sampler = BatchSampler(sampler, 5, drop_last=False)
    skipping = samplers.SkipBatchSampler(batch_sampler, skip=context.get_initial_batch())
    return TorchDataLoader(DATASET, batch_sampler=skipping)


LOADERS: dict[str, MakeLoader] = {
    "repeated batches": lambda _: DataLoader(DATASET, batch_sampler=samplers.RepeatBatchSampler(shuffled_batches())),
    "repeated and skipped": lambda context: DataLoader(
        DATASET, batch_sampler=adapt_batch_sampler(shuffled_batches(), True, context.get_initial_batch())
    ),
    "repeated samples": lambda _: DataLoader(DATASET, 5, sampler=samplers.RepeatSampler(RandomSampler(DATASET))),
    "own loader": lambda context: DataLoader(DATASET, 5, shuffle=True).get_data_loader(
        repeat=True, skip=context.get_initial_batch(), num_replicas=1, rank=0
    ),
    "part of a rank": lambda context: DataLoader(DATASET, 5, shuffle=True).get_data_loader(
        repeat=True, skip=context.get_initial_batch(), num_replicas=3, rank=2
    ),
    "guide": in_the_order_of_the_guide,
    "shuffled batches": lambda _: DataLoader(
        DATASET,
        batch_sampler=samplers.RepeatBatchSampler(
            samplers.ReproducibleShuffleBatchSampler(BatchSampler(SequentialSampler(DATASET), 5, False), seed=1)
        ),
    ),
}


def trained(make_loader: MakeLoader, job: str, *lengths: int) -> list[list[float]]:
    """Returns the samples of each batch, trained in as many starts as there are lengths."""
    batches = []
    checkpoint = None
    for length in lengths:

        class Loading(LineTrial):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                context.experimental.disable_dataset_reproducibility_checks()

            def build_training_data_loader(self) -> Any:
                return make_loader(self.context)

        with init(job_id=job) as context:
            context.core_context.info.trial.trial_seed = 17
            trial = Loading(context)
            fitted = Trainer(trial, context).fit(max_length=Batch(length), latest_checkpoint=checkpoint)
        checkpoint = fitted.latest_checkpoint
        batches += [list(samples) for _, _, samples, *_ in trial.trained]
    return batches


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_that_repeats_trains_and_goes_on_with_the_next_batch(name: str) -> None:
    """A training over an endless loader can be stopped at any batch and resumes with the next one."""
    whole = trained(LOADERS[name], "whole", 30)

    resumed = trained(LOADERS[name], "resumed", 2, 11, 30)

    assert resumed == whole
    assert whole[:4] != whole[4:8]


def test_a_loader_that_repeats_gives_each_sample_once_in_a_round() -> None:
    """An endless loader gives each sample once per round."""
    batches = trained(LOADERS["repeated batches"], "job", 20)

    num_batches = -(-len(DATASET) // 5)
    rounds = [sorted(chain(*batches[start : start + num_batches])) for start in (0, num_batches)]
    assert rounds == [sorted(DATASET.tensors[0].flatten().tolist())] * 2


def numbers(loader: Any, count: int) -> list[list[int]]:
    batches = resumable(loader, exact=False, distributed=DistributedContext()).stream()
    return [next(batches)[1].tolist() for _ in range(count)]


def test_a_loader_that_skips_begins_behind_what_it_skips() -> None:
    """Skipped batches are skipped once in an endless loader and in each round of a finite one."""
    batches = BatchSampler(SequentialSampler(range(5)), 2, drop_last=False)
    repeated = samplers.RepeatBatchSampler(batches)

    skipping: Any = TorchDataLoader(NUMBERS, batch_sampler=samplers.SkipBatchSampler(repeated, 4))
    cut: Any = TorchDataLoader(NUMBERS, batch_sampler=samplers.SkipBatchSampler(batches, 2))

    assert numbers(skipping, 4) == [[2, 3], [4], [0, 1], [2, 3]]
    assert numbers(cut, 2) == [[4], [4]]
    assert len(samplers.SkipBatchSampler(batches, 2)) == 3
    assert len(samplers.SkipBatchSampler(repeated, 2)) == 3


@pytest.mark.parametrize("is_torchs", [True, False])
def test_a_loader_for_one_rank_gives_the_part_of_this_rank(is_torchs: bool) -> None:
    """With a sampler for one rank, the parts of all ranks together are the data."""

    def part(rank: int) -> list[int]:
        sampler: Any = (
            TorchDistributedSampler(range(8), num_replicas=2, rank=rank, shuffle=True)  # type: ignore[arg-type]
            if is_torchs
            else samplers.DistributedSampler(samplers.RepeatSampler(range(8)), 2, rank)
        )
        return list(chain(*numbers(TorchDataLoader(NUMBERS, 2, sampler=sampler), 2)))

    parts = [part(rank) for rank in range(2)]

    assert sorted(parts[0] + parts[1]) == list(range(8))


def test_a_part_of_a_rank_is_not_divided_again() -> None:
    """A loader with a sampler for one rank is refused by resumable() on several ranks."""
    sampler = samplers.DistributedBatchSampler(samplers.RepeatBatchSampler(shuffled_batches()), 2, 1)

    with pytest.raises(ValueError, match="the part of one rank of 2, but"):
        resumable(TorchDataLoader(DATASET, batch_sampler=sampler), distributed=two_ranks())


def two_ranks() -> DistributedContext:
    context = DistributedContext()
    context.rank, context.size = 0, 2
    return context
