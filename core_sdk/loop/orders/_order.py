"""What all orders have in common."""

from __future__ import annotations

import abc
from typing import Any

import torch


class Order(abc.ABC):
    """The units of each epoch, one per position. A unit is a sample or a batch. Epochs have equal lengths."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of positions of an epoch."""

    @abc.abstractmethod
    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        """What stands at these positions: indices of a dataset, or other keys that it takes; or batches of them."""

    def num_samples(self, epoch: int, start: int, stop: int) -> int:
        """How many samples the positions from `start` to before `stop` have."""
        return stop - start
