"""The batches of a training, as a function of the order of the data and of a position in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, NamedTuple, get_args

import torch

from core_sdk.errors import DataError
from core_sdk.loop._orders import ENDLESS, Order

LastBatch = Literal["drop", "keep", "carry"]

# Orders are asked for many positions at once, since a call costs as much as a hundred positions.
_BLOCK_SIZE = 4096


class Position(NamedTuple):
    """The amount of data that has been consumed."""

    epoch: int = 0
    offset: int = 0
    """The units consumed in that epoch. At its end these are all, or more if the last batch was carried over."""


class DataParallelRank(NamedTuple):
    """The place of a rank among those that divide the batches."""

    rank: int = 0
    size: int = 1


class Draw(NamedTuple):
    """The part of a global batch that one rank takes."""

    epoch: int
    """The epoch in which the global batch begins."""
    start: int
    """The number of positions, over all epochs, before this part. It seeds the random numbers of the part."""
    indices: list[Any]
    """The keys that the order has at `start` and at the positions after it."""
    num_global: int
    """The number of samples of the global batch, on all ranks together."""
    offset: int
    """The offset in `epoch` after the global batch, as in `Position`."""
    is_epoch_end: bool
    """Whether this is the last global batch of `epoch`."""
    is_filler: bool
    """Whether too few units were left for all ranks, so that this part repeats a unit of another rank."""


class Plan:
    """Divides the order of the data into global batches, and each global batch among the ranks.

    A unit is a sample or, with a batch sampler of the user's, one of its batches. `batch_size` counts the units of all
    ranks together. If too few units are left for the last batch of an epoch, `last_batch` says whether they are
    dropped, kept as a smaller batch, or carried over to the first batch of the next epoch.
    """

    def __init__(self, order: Order, batch_size: int, last_batch: LastBatch = "keep") -> None:
        """Raises `ValueError` if no batches can be made."""
        self.order = order
        self.num_units = len(order)
        self.batch_size = batch_size
        self.last_batch = last_batch
        if last_batch not in get_args(LastBatch):
            raise ValueError(f"last_batch={last_batch!r}: give one of {', '.join(get_args(LastBatch))}")
        if batch_size < 1:
            raise ValueError(f"a batch of {batch_size} samples: give 1 or more")
        if self.num_units == 0:
            raise ValueError("there are no data: the dataset or its sampler has length 0")
        if last_batch != "keep" and self.num_units < batch_size:
            raise ValueError(
                f"an epoch of {self.num_units} has no whole batch of {batch_size}: make the batches smaller, "
                "or keep a smaller one: drop_last=False, or last_batch='keep' of resumable()"
            )

    @property
    def batches_per_epoch(self) -> int | None:
        """The number of global batches of every epoch; None if it is unknown, or if epochs differ."""
        return self.num_batches(0) if self.order.has_equal_epochs else None

    def num_batches(self, epoch: int) -> int | None:
        """Returns the number of global batches of an epoch; None if it is unknown, or if batches are carried over."""
        num_units = self.order.length(epoch)
        if num_units == ENDLESS:
            return None
        if self.last_batch == "keep":
            return -(-num_units // self.batch_size)
        is_whole = num_units % self.batch_size == 0 and self.order.has_equal_epochs
        return num_units // self.batch_size if self.last_batch == "drop" or is_whole else None

    def is_epoch_over(self, position: Position) -> bool:
        """Returns whether the epoch of `position` has no more batches."""
        left = self.order.length(position.epoch) - position.offset
        return left <= 0 or (self.last_batch == "drop" and left < self.batch_size)

    def next_epoch(self, position: Position) -> Position:
        """Returns the position at which the next epoch begins: after the units that a carried-over batch has taken."""
        num_taken = position.offset - self.order.length(position.epoch) if self.last_batch == "carry" else 0
        return Position(position.epoch + 1, max(0, num_taken))

    def after(self, position: Position, num_batches: int) -> Position:
        """Returns the position after so many more global batches."""
        for draw in islice(self.batches(position), num_batches):
            position = Position(draw.epoch, draw.offset)
        return position

    def batches(self, position: Position = Position(), rank: int = 0, num_ranks: int = 1) -> Iterator[Draw]:  # noqa: B008
        """Yields the parts of one rank, from `position` on, without an end."""
        if self.batch_size < num_ranks:
            raise ValueError(
                f"a global batch of {self.batch_size} has nothing for some of {num_ranks} ranks: make it larger, or "
                "take fewer ranks"
            )
        while True:
            if self.is_epoch_over(position):
                position = self.next_epoch(position)
            if self.is_epoch_over(position):
                raise DataError(
                    f"epoch {position.epoch} has {self.order.length(position.epoch)} of {self.batch_size} for a batch: "
                    "make the batches smaller, or keep a smaller one: last_batch='keep' of resumable()"
                )
            for draw in self._rest_of_epoch(position, rank, num_ranks):
                yield draw
            position = Position(draw.epoch, draw.offset)

    def _rest_of_epoch(self, position: Position, rank: int, num_ranks: int) -> Iterator[Draw]:
        epoch, offset = position
        num_whole, left = divmod(self.order.length(epoch) - offset, self.batch_size)
        is_last = left == 0 or self.last_batch == "drop"
        yield from self._whole_batches(position, num_whole, rank, num_ranks, is_last)
        if not is_last:
            start = offset + num_whole * self.batch_size
            size = left if self.last_batch == "keep" else self.batch_size
            yield self._last_batch(epoch, start, size, rank, num_ranks)

    def _whole_batches(
        self, position: Position, num_batches: int, rank: int, num_ranks: int, is_last: bool
    ) -> Iterator[Draw]:
        epoch, offset = position
        size = self.batch_size
        own = torch.arange(*_part(size, rank, num_ranks))
        share = len(own)
        first = epoch * self.order.stride + int(own[0])
        per_block = max(1, _BLOCK_SIZE // share)
        num_samples, num_units = self.order.num_samples, self.order.length(epoch)
        for block in range(0, num_batches, per_block):
            batches = torch.arange(block, min(num_batches, block + per_block))
            positions = (offset + batches[:, None] * size + own).flatten()
            indices = self.order.indices(epoch, positions)
            for batch in range(len(batches)):
                begin = offset + (block + batch) * size
                is_epoch_end = is_last and block + batch == num_batches - 1
                part = indices[batch * share : (batch + 1) * share]
                end = num_units if is_epoch_end else begin + size
                num_global = num_samples(epoch, begin, begin + size)
                yield Draw(epoch, first + begin, part, num_global, end, is_epoch_end, False)

    def _last_batch(self, epoch: int, start: int, size: int, rank: int, num_ranks: int) -> Draw:
        """Returns a batch with the units that are left of an epoch."""
        begin, end = _part(size, rank, num_ranks)
        is_filler = begin == end
        if is_filler:
            begin = rank % size
            end = begin + 1
        positions, num_units = torch.arange(start + begin, start + end), self.order.length(epoch)
        here, beyond = positions[positions < num_units], positions[positions >= num_units] - num_units
        num_beyond = max(0, start + size - num_units)
        num_global = self.order.num_samples(epoch, start, start + size - num_beyond)
        indices = self.order.indices(epoch, here)
        if num_beyond:
            num_global += self.order.num_samples(epoch + 1, 0, num_beyond)
            indices += self.order.indices(epoch + 1, beyond)
        serial = epoch * self.order.stride + start + begin
        return Draw(epoch, serial, indices, num_global, start + size, True, is_filler)


def _part(size: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """Returns the beginning and the end of a rank's part of a batch. The sizes of parts differ by one unit at most."""
    return size * rank // num_ranks, size * (rank + 1) // num_ranks
