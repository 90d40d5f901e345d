"""The positions themselves, of data that find the sample at a position on their own."""

from __future__ import annotations

import torch

from core_sdk.loop.orders._order import Order

ENDLESS = 1 << 62
"""The length of an epoch whose length is not known yet."""


class Positions(Order):
    """Gives each position as a pair of the epoch and the position in it."""

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
