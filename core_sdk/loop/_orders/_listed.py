"""Orders that are held in memory: those that a sampler of the user's gives, and selections of samples."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from core_sdk.loop._orders._order import Order


class Listed(Order):
    """The order that `draw(epoch)` gives. Holds one epoch in memory; integers take 8 bytes each."""

    def __init__(self, num_positions: int, draw: Callable[[int], Iterable[Any]]) -> None:
        self._num_positions = num_positions
        self._draw = draw
        self._epoch: int | None = None
        self._listed: Sequence[Any] = ()
        self._lengths = {0: num_positions}

    def __len__(self) -> int:
        return self._num_positions

    def length(self, epoch: int) -> int:
        return self._lengths[epoch] if epoch in self._lengths else len(self._list(epoch))

    @property
    def has_equal_epochs(self) -> bool:
        return len({*self._lengths.values()}) == 1

    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        listed = self._list(epoch)
        return [listed[position] for position in positions.tolist()]

    def _list(self, epoch: int) -> Sequence[Any]:
        if epoch != self._epoch:
            self._listed = self._compact(self._draw(epoch))
            self._epoch, self._lengths[epoch] = epoch, len(self._listed)
        return self._listed

    def _compact(self, keys: Iterable[Any]) -> Sequence[Any]:
        return compact(list(keys))


class ListedBatches(Listed):
    """The order of whole batches that `draw(epoch)` gives. They may have any sizes; each is a sequence."""

    def num_samples(self, epoch: int, start: int, stop: int) -> int:
        return sum(map(len, self._list(epoch)[start:stop]))

    def _compact(self, keys: Iterable[Any]) -> Sequence[Any]:
        return [compact(list(batch)) for batch in keys]


class Selected(Order):
    """Some samples of a dataset. `order` gives positions within `selection`, which holds the samples' indices."""

    def __init__(self, order: Order, selection: Iterable[Any]) -> None:
        self._order = order
        self._selection = compact(list(selection))

    def __len__(self) -> int:
        return len(self._order)

    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        return [self._selection[number] for number in self._order.indices(epoch, positions)]


def compact(keys: Sequence[Any]) -> Sequence[Any]:
    """Returns integers as an array of 8 bytes each, and other keys unchanged."""
    return array.array("q", keys) if all(type(each) is int for each in keys) else keys
