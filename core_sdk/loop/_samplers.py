"""Samplers that repeat, divide, skip or shuffle the draws of another one. `core_sdk.pytorch.samplers` exports them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import BatchSampler, Sampler


class RepeatSampler(Sampler[Any]):
    """Draws all of `sampler`, again and again, without an end. Its length is the length of one round."""

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

    The length is the length of `sampler`, as in Determined: if it repeats, only the first round is shorter.
    """

    def __init__(self, sampler: Iterable[Any], skip: int) -> None:
        self.sampler = sampler
        self.skip = skip

    def __len__(self) -> int:
        return _length(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self.sampler, self.skip, None)


class ReproducibleShuffleSampler(Sampler[Any]):
    """Draws all of `sampler` in an order that `seed` determines. Each iteration has a different order.

    The orders are the same as in Determined: one after the other from `numpy.random.RandomState(seed).shuffle()`.
    """

    def __init__(self, sampler: Iterable[Any], seed: int) -> None:
        self.sampler = sampler
        self._seed = seed
        self._epoch = 0
        self._generator = _mersenne_twister(seed)
        self._num_drawn = 0
        """The number of orders that the generator has given."""

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch, counted from 0."""
        self._epoch = epoch

    def __len__(self) -> int:
        return _length(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        drawn = list(self.sampler)
        if self._epoch < self._num_drawn:
            self._generator, self._num_drawn = _mersenne_twister(self._seed), 0
        while self._num_drawn < self._epoch:
            self._shuffle([*drawn])
        self._shuffle(drawn)
        self._epoch = self._num_drawn
        return iter(drawn)

    def _shuffle(self, drawn: list[Any]) -> None:
        for last in range(len(drawn) - 1, 0, -1):
            mask = (1 << last.bit_length()) - 1
            while (chosen := self._generator.getrandbits(32) & mask) > last:
                pass
            drawn[last], drawn[chosen] = drawn[chosen], drawn[last]
        self._num_drawn += 1


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
    """Returns whether one of the samplers repeats the rest of the chain."""
    return any(isinstance(each, RepeatSampler) for each in chain(sampler))


def _mersenne_twister(seed: int) -> random.Random:
    """Returns a generator with the state that numpy gives its `RandomState(seed)`, which Python seeds otherwise."""
    if not 0 <= seed < 1 << 32:
        raise ValueError(f"the seed of a shuffle is {seed}; it must be between 0 and 2**32 - 1")
    words = [int(seed)]
    for index in range(1, 624):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + index) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*words, 624), None))
    return generator


def _length(sampler: Iterable[Any]) -> int:
    if not isinstance(sampler, Sized):
        raise TypeError(f"{type(sampler).__name__} has no length: give it a __len__()")
    return len(sampler)
