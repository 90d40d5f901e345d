"""Samplers that repeat, divide, skip or shuffle the draws of another one. `core_sdk.pytorch.samplers` exports them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import BatchSampler, Sampler


class RepeatSampler(Sampler[Any]):
    """Draws all of `sampler`, again and again, without an end. Its length is that of one round."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return _length(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class DistributedSampler(Sampler[Any]):
    """Draws every `num_workers`-th sample of `sampler`, beginning with number `rank`.

    Unlike torch's class of this name, it neither shuffles nor pads.
    """

    def __init__(self, sampler: Iterable[Any], num_workers: int, rank: int) -> None:
        if num_workers < 1 or not 0 <= rank < num_workers:
            raise ValueError(f"rank is {rank} of {num_workers} workers; it must be between 0 and num_workers - 1")
        self.sampler = sampler
        self.num_workers = num_workers
        self.rank = rank

    def __len__(self) -> int:
        each, rest = divmod(_length(self.sampler), self.num_workers)
        return each + (self.rank < rest)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.rank, None, self.num_workers)


class SkipSampler(Sampler[Any]):
    """Leaves out the first `skip` samples of `sampler`. Repeat first; otherwise each epoch lacks these samples.

    If `sampler` repeats, the length is that of one round: only the first one is shorter.
    """

    def __init__(self, sampler: Iterable[Any], skip: int) -> None:
        self.sampler = sampler
        self.skip = skip

    def __len__(self) -> int:
        length = _length(self.sampler)
        return length if is_endless(self.sampler) else max(0, length - self.skip)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.skip, None)


class ReproducibleShuffleSampler(Sampler[Any]):
    """Draws all of `sampler` in an order that `seed` determines. Each iteration has a different order."""

    def __init__(self, sampler: Iterable[Any], seed: int) -> None:
        self.sampler = sampler
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration use the order of this epoch, counted from 0."""
        self._epoch = epoch

    def __len__(self) -> int:
        return _length(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        drawn = list(self.sampler)
        random.Random(f"{self._seed} {self._epoch}").shuffle(drawn)
        self._epoch += 1
        return iter(drawn)


class RepeatBatchSampler(RepeatSampler, BatchSampler):
    """A `RepeatSampler` for a sampler that draws batches."""

    def __init__(self, batch_sampler: Iterable[Any]) -> None:
        super().__init__(batch_sampler)
        self.batch_sampler = batch_sampler


class DistributedBatchSampler(DistributedSampler, BatchSampler):
    """A `DistributedSampler` for a sampler that draws batches.

    Repeat first; otherwise ranks may get different numbers of batches.
    """

    def __init__(self, batch_sampler: Iterable[Any], num_workers: int, rank: int) -> None:
        super().__init__(batch_sampler, num_workers, rank)
        self.batch_sampler = batch_sampler


class SkipBatchSampler(SkipSampler, BatchSampler):
    """A `SkipSampler` for a sampler that draws batches."""

    def __init__(self, batch_sampler: Iterable[Any], skip: int) -> None:
        super().__init__(batch_sampler, skip)
        self.batch_sampler = batch_sampler


class ReproducibleShuffleBatchSampler(ReproducibleShuffleSampler):
    """A `ReproducibleShuffleSampler` for a sampler that draws batches: it changes the order of the batches only."""

    def __init__(self, batch_sampler: Iterable[Any], seed: int) -> None:
        super().__init__(batch_sampler, seed)


def chain(sampler: Any) -> Iterator[Any]:
    """Yields a sampler, the sampler that it draws from, and so on."""
    while sampler is not None:
        yield sampler
        sampler = getattr(sampler, "sampler", None)


def is_endless(sampler: Any) -> bool:
    """Whether one of the samplers repeats the rest of the chain."""
    return any(isinstance(each, RepeatSampler) for each in chain(sampler))


def _length(sampler: Iterable[Any]) -> int:
    if not isinstance(sampler, Sized):
        raise TypeError(f"{type(sampler).__name__} has no length: give it a __len__()")
    return len(sampler)
