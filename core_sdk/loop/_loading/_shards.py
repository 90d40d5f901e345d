"""Reads the samples of a sharded dataset by their positions in an epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import IterableDataset

from core_sdk.errors import DataError
from core_sdk.loop import _rng as rng
from core_sdk.loop._orders import Shuffled, shuffled
from core_sdk.loop._sharded_dataset import ShardedDataset, is_sequence

Seed = Callable[[int], None]
"""Seeds the generators that the samples draw from."""


class EpochEndError(Exception):
    """A position is beyond the end of the epoch. By then the lengths of all shards are known."""


class ShardReader:
    """Gives the sample at any position of an epoch, and learns the lengths of shards.

    A shard of unknown length is read as if it had no end. Once it has ended, its length is known, and the position is
    looked for in the following shards.

    The generators are seeded before each sample is read, by its shard and its number, also if the sample is left out.
    So what `read()` draws at random does not depend on which samples a worker needs.
    """

    def __init__(self, dataset: ShardedDataset, seed: int, lengths: list[int | None]) -> None:
        """`lengths` is filled in with those that are learnt."""
        self.lengths = lengths
        self._dataset = dataset
        self._block_size = dataset.block_size
        self._seed = seed
        self._shuffled = Shuffled(len(lengths), rng.key(seed, "shards"))
        self._epoch: int | None = None
        self._order: Sequence[int] = ()
        """The shards of the epoch, in order."""
        self._starts = [0]
        """The positions at which they begin, as far as these are known, and the end of the last one."""
        self._open: dict[int, _OpenShard] = {}
        """The shards that are being read, by their numbers in the order."""
        self._block = 0
        self._places: Sequence[int] | None = None
        """The order of the samples within the block."""

    def sample(self, epoch: int, position: int, seed: Seed) -> Any:
        """Returns the sample at a position.

        Raises `EpochEndError`, and `DataError` for a shard that does not have the length that is known.
        """
        number, offset = self._locate(epoch, self._shuffled_position(epoch, position, seed), seed)
        shard = self._order[number]
        length = self.lengths[shard]
        opened = self._opened(number, seed)
        if not opened.reaches(offset, seed):
            raise self._changed(shard, opened.num_known)
        try:
            sample = opened.sample(offset, seed)
            if self._dataset.transform is not None:
                seed(rng.key(self._seed, "transform", epoch, shard, offset))
                sample = self._dataset.transform(sample)
        except Exception as error:
            _add_note(error, offset, self._dataset.shards[shard])
            raise
        if offset + 1 == length and opened.reaches(length, seed):
            raise self._changed(shard, "more")
        return sample

    def check(self, epoch: int, position: int, seed: Seed) -> None:
        """Raises `EpochEndError` if the epoch does not have this position."""
        self._locate(epoch, position, seed)

    def close(self) -> None:
        """Closes all shards. They are opened again when they are needed."""
        self._open.clear()

    def _locate(self, epoch: int, position: int, seed: Seed) -> tuple[int, int]:
        """Returns the number of a position's shard in the order, and the number of the sample in the shard."""
        if epoch != self._epoch:
            self._begin(epoch)
        while True:
            number = bisect_right(self._starts, position) - 1
            offset = position - self._starts[number]
            if number < len(self._starts) - 1:
                return number, offset
            if number == len(self._order):
                raise EpochEndError
            shard = self._order[number]
            length = self.lengths[shard]
            if length is None:
                opened = self._opened(number, seed)
                if opened.reaches(offset, seed):
                    return number, offset
                length = self.lengths[shard] = opened.num_known
            self._starts.append(self._starts[number] + length)

    def _begin(self, epoch: int) -> None:
        shards = torch.arange(len(self.lengths))
        self._order = self._shuffled.indices(epoch, shards) if self._dataset.shuffle else shards.tolist()
        self._epoch, self._starts, self._places = epoch, [0], None
        self.close()

    def _shuffled_position(self, epoch: int, position: int, seed: Seed) -> int:
        if self._block_size == 1:
            self._block = position
            return position
        block, place = divmod(position, self._block_size)
        if self._places is None or (epoch, block) != (self._epoch, self._block):
            start, size = block * self._block_size, self._block_size
            try:
                self._locate(epoch, start + size - 1, seed)
            except EpochEndError:
                size = max(0, self._starts[-1] - start)
            keyed = rng.key(self._seed, "block", epoch, block)
            self._block, self._places = block, shuffled(torch.arange(size), size, keyed).tolist() if size else ()
        if place >= len(self._places):
            raise EpochEndError
        return block * self._block_size + self._places[place]

    def _opened(self, number: int, seed: Seed) -> _OpenShard:
        """Returns an open shard. Before it opens one, closes those that end before the current block."""
        if number not in self._open:
            first = bisect_right(self._starts, self._block * self._block_size) - 1
            self._open = {other: each for other, each in self._open.items() if first <= other}
            self._open[number] = self._open_shard(self._order[number], seed)
        return self._open[number]

    def _open_shard(self, shard: int, seed: Seed) -> _OpenShard:
        base = rng.key(self._seed, "shard", self._epoch or 0, shard)

        def read() -> Any:
            seed(base)
            samples = self._dataset.read(self._dataset.shards[shard])
            if callable(set_epoch := getattr(samples, "set_epoch", None)):
                set_epoch(self._epoch)
            return _rows(samples) if _divides_itself(samples) else samples

        samples = read()
        if not is_sequence(samples):
            return _Iterable(samples, read, base, self._block_size, self._dataset.shards[shard])
        if self.lengths[shard] not in (None, len(samples)):
            raise self._changed(shard, len(samples))
        return _Sequence(samples, base)

    def _changed(self, shard: int, found: object) -> DataError:
        return DataError.changed(f"the length of shard {self._dataset.shards[shard]!r}", self.lengths[shard], found)


class _OpenShard(Protocol):
    """The samples of a shard that is open for reading."""

    @property
    def num_known(self) -> int:
        """The number of samples that are known to exist. These are all once `reaches()` has returned False."""

    def reaches(self, offset: int, seed: Seed) -> bool:
        """Returns whether the shard has a sample of this number."""

    def sample(self, offset: int, seed: Seed) -> Any:
        """Returns a sample that `reaches()` has found."""


class _Sequence:
    """Samples that can be taken in any order."""

    def __init__(self, samples: Any, base: int) -> None:
        self._samples = samples
        self._base = base
        self.num_known = len(samples)

    def reaches(self, offset: int, seed: Seed) -> bool:
        return offset < self.num_known

    def sample(self, offset: int, seed: Seed) -> Any:
        seed(rng.key_of(self._base, offset))
        return self._samples[offset]


class _Iterable:
    """Samples that are read from the first one on. The last `num_kept` that were read are kept."""

    def __init__(
        self, samples: Iterable[Any], read: Callable[[], Iterable[Any]], base: int, num_kept: int, name: object
    ) -> None:
        self._read = read
        self._name = name
        self._base = base
        self._rest: Iterator[Any] = iter(samples)
        self._kept: deque[Any] = deque(maxlen=num_kept)
        self.num_known = 0

    def reaches(self, offset: int, seed: Seed) -> bool:
        if offset < self.num_known - len(self._kept):
            self._rest, self.num_known = iter(self._read()), 0
            self._kept.clear()
        try:
            while self.num_known <= offset:
                seed(rng.key_of(self._base, self.num_known))
                self._kept.append(next(self._rest))
                self.num_known += 1
        except StopIteration:
            return False
        except Exception as error:
            _add_note(error, self.num_known, self._name)
            raise
        return True

    def sample(self, offset: int, seed: Seed) -> Any:
        return self._kept[offset - self.num_known]


def _add_note(error: Exception, number: int, shard: object) -> None:
    error.add_note(f"This came from sample {number} of shard {shard!r}.")


def _divides_itself(samples: Any) -> bool:
    """Returns whether it is an iterable dataset of Hugging Face, which iterates otherwise in a loader worker."""
    return isinstance(samples, IterableDataset) and callable(getattr(samples, "iter", None))


def _rows(samples: Any) -> Iterator[dict[str, Any]]:
    for batch in samples.iter(batch_size=1):
        yield {name: column[0] for name, column in batch.items()}
