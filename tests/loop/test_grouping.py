"""Batches of one group each."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from core_sdk import loop

GROUPS = ["short"] * 7 + ["long"] * 12 + ["short"] * 2


def batches(sampler: loop.GroupedBatchSampler, epoch: int = 0) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


def test_a_batch_has_samples_of_one_group() -> None:
    """Each batch has samples of one group, and each sample comes once per epoch."""
    sampler = loop.GroupedBatchSampler(GROUPS, 4)

    drawn = batches(sampler)

    assert all(len({GROUPS[index] for index in batch}) == 1 for batch in drawn)
    assert sorted(index for batch in drawn for index in batch) == list(range(21))
    assert sorted(map(len, drawn)) == [1, 4, 4, 4, 4, 4]
    assert len(sampler) == 6


def test_samples_that_fill_no_batch_may_be_dropped() -> None:
    """With drop_last the rest of each group is dropped."""
    sampler = loop.GroupedBatchSampler(GROUPS, 5, drop_last=True)

    assert list(map(len, batches(sampler))) == [5, 5, 5]
    assert len(sampler) == 3


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    """The order depends only on the seed and the epoch."""
    sampler = loop.GroupedBatchSampler(GROUPS, 4, seed=1)

    assert batches(sampler, 3) == batches(loop.GroupedBatchSampler(GROUPS, 4, seed=1), 3)
    assert batches(sampler, 3) != batches(sampler, 4)
    assert batches(sampler, 3) != batches(loop.GroupedBatchSampler(GROUPS, 4, seed=2), 3)
    assert len({GROUPS[batches(sampler, epoch)[0][0]] for epoch in range(10)}) == 2


def test_a_resume_is_exact() -> None:
    """A loader with grouped batches resumes exactly."""
    data = TensorDataset(torch.arange(21))

    def loader() -> loop.ResumableLoader:
        return loop.resumable(DataLoader(data, batch_sampler=loop.GroupedBatchSampler(GROUPS, 4)))

    first, second = loader(), loader()
    drawn = [draw.indices for draw, _ in islice(first.stream(), 8)]
    state = first.state_dict()
    drawn += [draw.indices for draw, _ in islice(first.stream(), 8)]

    second.load_state_dict(state)

    assert [draw.indices for draw, _ in islice(second.stream(), 8)] == drawn[8:]


def test_groups_without_a_batch_are_refused() -> None:
    """Groups that are all smaller than a batch are refused with advice."""
    with pytest.raises(ValueError, match="no group has the 30 samples of a batch: make the batches smaller"):
        loop.GroupedBatchSampler(GROUPS, 30, drop_last=True)
    with pytest.raises(ValueError, match="give 1 or more"):
        loop.GroupedBatchSampler(GROUPS, 0)
