"""An order that a sampler of the user's gives."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from core_sdk.errors import DataChangedError


class Listed:
    """What `draw(epoch)` gives, one epoch at a time: integers take 8 bytes each, other keys what they take."""

    def __init__(self, num_positions: int, draw: Callable[[int], Iterable[Any]]) -> None:
        self._num_positions = num_positions
        self._draw = draw
        self._epoch: int | None = None
        self._listed: Sequence[Any] = ()

    def __len__(self) -> int:
        return self._num_positions

    def indices(self, epoch: int, positions: torch.Tensor) -> list[Any]:
        if epoch != self._epoch:
            self._listed = _compact(list(self._draw(epoch)))
            self._epoch = epoch
            if len(self._listed) != self._num_positions:
                raise DataChangedError("the sampler's epoch", self._num_positions, len(self._listed))
        return [self._listed[position] for position in positions.tolist()]


def _compact(keys: list[Any]) -> Sequence[Any]:
    return array.array("q", keys) if all(type(each) is int for each in keys) else keys
