"""Samplers that repeat, divide, skip or shuffle what another sampler draws.

Apply them in this order: shuffle, repeat, divide among the ranks, make batches, skip. In a `Trainer` nothing of this is
needed: it does all of it for a `DataLoader`, by a plan that is a function of the seed and the epoch.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import BatchSampler, Sampler


class RepeatSampler(Sampler[Any]):
    """Draws all of `sampler`, again and again without an end. Its length is that of one round."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return _length(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self._sampler


class DistributedSampler(Sampler[Any]):
    """Draws every `num_workers`-th sample of `sampler`, beginning with number `rank`.

    Unlike torch's class of that name it neither shuffles nor pads.
    """

    def __init__(self, sampler: Iterable[Any], num_workers: int, rank: int) -> None:
        if num_workers < 1 or not 0 <= rank < num_workers:
            raise ValueError(f"rank is {rank} of {num_workers} workers; it must be between 0 and num_workers - 1")
        self._sampler = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        each, rest = divmod(_length(self._sampler), self._num_workers)
        return each + (self._rank < rest)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._sampler, self._rank, None, self._num_workers)


class SkipSampler(Sampler[Any]):
    """Leaves out the first `skip` samples of `sampler`. Repeat before, or each epoch is cut.

    Its length is that of `sampler`, since only the first epoch is shorter.
    """

    def __init__(self, sampler: Iterable[Any], skip: int) -> None:
        self._sampler = sampler
        self._skip = skip

    def __len__(self) -> int:
        return _length(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._sampler, self._skip, None)


class ReproducibleShuffleSampler(Sampler[Any]):
    """Draws all of `sampler` in an order that follows from `seed`, and in another one the next time."""

    def __init__(self, sampler: Iterable[Any], seed: int) -> None:
        self._sampler = sampler
        self._random = random.Random(seed)

    def __len__(self) -> int:
        return _length(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        drawn = list(self._sampler)
        self._random.shuffle(drawn)
        return iter(drawn)


class RepeatBatchSampler(RepeatSampler, BatchSampler):
    """The same for a sampler that draws batches."""

    def __init__(self, batch_sampler: Iterable[Any]) -> None:
        super().__init__(batch_sampler)
        self.batch_sampler = batch_sampler


class DistributedBatchSampler(DistributedSampler, BatchSampler):
    """The same for a sampler that draws batches. Repeat before, or ranks may get different numbers of batches."""

    def __init__(self, batch_sampler: Iterable[Any], num_workers: int, rank: int) -> None:
        super().__init__(batch_sampler, num_workers, rank)
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.rank = rank


class SkipBatchSampler(SkipSampler, BatchSampler):
    """The same for a sampler that draws batches."""

    def __init__(self, batch_sampler: Iterable[Any], skip: int) -> None:
        super().__init__(batch_sampler, skip)
        self.batch_sampler = batch_sampler
        self.skip = skip


class ReproducibleShuffleBatchSampler(ReproducibleShuffleSampler):
    """The same for a sampler that draws batches: the batches stay as they are, and come in another order."""

    def __init__(self, batch_sampler: Iterable[Any], seed: int) -> None:
        super().__init__(batch_sampler, seed)


def _length(sampler: Iterable[Any]) -> int:
    if not isinstance(sampler, Sized):
        raise TypeError(f"{type(sampler).__name__} has no length: give it a __len__()")
    return len(sampler)
