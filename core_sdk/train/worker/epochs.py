"""Makes each iteration over a loader a new epoch, also if the one before was left early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk.loop import ResumableLoader


class Epochs:
    """A loader whose every iteration is an epoch. The first one after `load_state_dict()` goes on at its position."""

    def __init__(self, batches: ResumableLoader) -> None:
        self._batches = batches
        self._is_under_way = False
        """Whether an epoch was begun and not ended."""

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        if self._is_under_way:
            self._turn_to(self._batches.epoch + 1)
        self._is_under_way = True
        yield from self._batches
        self._is_under_way = False

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration. A resumed epoch of this number keeps its position."""
        if self._is_under_way or epoch != self._batches.epoch:
            self._turn_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, as plain values."""
        return self._batches.state_dict()

    def next_state(self) -> dict[str, Any]:
        """Returns the position at which the next iteration begins."""
        state = self._batches.state_dict()
        return _at_start_of(state, state["epoch"] + 1) if self._is_under_way else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on at the position of a state. Raises `DataError` if it cannot be found in these data."""
        self._batches.load_state_dict(state)
        self._is_under_way = False

    def _turn_to(self, epoch: int) -> None:
        self.load_state_dict(_at_start_of(self._batches.state_dict(), epoch))


def _at_start_of(state: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Returns the state at the start of an epoch. Pure.

    The keys `data` and `is_epoch_over` belong to data that can only be read from their beginning.
    """
    begun = {**state, "epoch": epoch, "offset": 0}
    return begun | {name: value for name, value in (("data", None), ("is_epoch_over", False)) if name in state}
