"""What all orders have in common."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Order(Protocol):
    """The samples of each epoch, one per position. Epochs have equal lengths."""

    def __len__(self) -> int:
        """The number of positions of an epoch."""

    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        """What stands at these positions: indices of a dataset, or other keys that it takes."""
