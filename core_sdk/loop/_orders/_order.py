"""The interface of all orders, and the plainest ones."""

from __future__ import annotations

import abc
from typing import Any

import torch

ENDLESS = 1 << 62
"""The length of an epoch whose length is not known yet."""


class Order(abc.ABC):
    """The order of the units of each epoch. A unit is a sample or a batch."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of positions of the first epoch."""

    def length(self, epoch: int) -> int:
        """Returns the number of positions of an epoch."""
        return len(self)

    @property
    def has_equal_epochs(self) -> bool:
        """Whether all epochs have the same length, as far as is known."""
        return True

    @property
    def stride(self) -> int:
        """The difference between the numbers of a position in two consecutive epochs. It seeds random numbers.

        If an epoch is longer than the first one, its last positions share their numbers with the next epoch.
        """
        return len(self)

    @abc.abstractmethod
    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        """Returns the keys at these positions: indices of a dataset, other keys that it takes, or batches of keys."""

    def num_samples(self, epoch: int, start: int, stop: int) -> int:
        """Returns the number of samples at the positions from `start` up to, but not including, `stop`."""
        return stop - start


class Sequential(Order):
    """An order with each sample once, sorted by index."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples

    def indices(self, epoch: int, positions: torch.Tensor) -> list[int]:
        return positions.tolist()


class Positions(Order):
    """Gives each position as a pair of the epoch and the position in it: such data find their samples themselves."""

    def __init__(self, num_positions: int | None) -> None:
        """`num_positions` is None if it is not known yet: then the epoch has no end."""
        self._num_positions = ENDLESS if num_positions is None else num_positions

    def __len__(self) -> int:
        return self._num_positions

    @property
    def stride(self) -> int:
        return 1 << 40  # the same before the length is known and after it

    def indices(self, epoch: int, positions: torch.Tensor) -> list[tuple[int, int]]:
        return [(epoch, position) for position in positions.tolist()]
