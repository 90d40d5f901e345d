"""Makes each iteration over a loader a new epoch, also if the one before was left early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk.loop import ResumableLoader


class Epochs:
    """A loader whose every iteration is an epoch. The first one after `load_state_dict()` goes on at its position."""

    def __init__(self, batches: ResumableLoader) -> None:
        self._batches = batches
        self.is_under_way = False
        """Whether an epoch was begun and not ended."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        if self.is_under_way:
            self._begin(self._batches.epoch + 1)
        self.is_under_way = True
        yield from self._batches
        self.is_under_way = False

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. A resumed epoch of this number keeps its position."""
        if self.is_under_way or epoch != self._batches.epoch:
            self._begin(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, as plain values."""
        return self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on at the position of a state. Raises `DataError` if it cannot be found in these data."""
        self._batches.load_state_dict(state)
        self.is_under_way = False

    def _begin(self, epoch: int) -> None:
        self._batches.begin_epoch(epoch)
        self.is_under_way = False
