"""An order of some samples of a dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from core_sdk.loop.orders._listed import compact
from core_sdk.loop.orders._order import Order


class Selected(Order):
    """Some samples of a dataset. `order` gives positions within `selection`, which holds the samples' indices."""

    def __init__(self, order: Order, selection: Iterable[Any]) -> None:
        self._order = order
        self._selection = compact(list(selection))

    def __len__(self) -> int:
        return len(self._order)

    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        return [self._selection[number] for number in self._order.indices(epoch, positions)]
