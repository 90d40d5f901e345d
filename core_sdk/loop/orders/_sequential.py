"""The order in which the samples are stored."""

from __future__ import annotations

import torch

from core_sdk.loop.orders._order import Order


class Sequential(Order):
    """An order with each sample once, sorted by index."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples

    def __len__(self) -> int:
        return self._num_samples

    def indices(self, epoch: int, positions: torch.Tensor) -> list[int]:
        return positions.tolist()
