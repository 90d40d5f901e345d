"""Iterates over a loader as scripts do over torch's: each iteration is an epoch, also after one that was broken off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_sdk.loop import ResumableLoader


class Epochs:
    """The first iteration after `load_state_dict()` goes on where the state was."""

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
        """Turns to this epoch. It is the next one anyway; a resumed one goes on where it was."""
        if self._is_under_way or epoch != self._batches.epoch:
            self._turn_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position, as plain values."""
        return self._batches.state_dict()

    def next_state(self) -> dict[str, Any]:
        """The position of the next iteration."""
        state = self._batches.state_dict()
        return _at_start_of(state, state["epoch"] + 1) if self._is_under_way else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises `DataError` if the position cannot be found in these data."""
        self._batches.load_state_dict(state)
        self._is_under_way = False

    def _turn_to(self, epoch: int) -> None:
        self.load_state_dict(_at_start_of(self._batches.state_dict(), epoch))


def _at_start_of(state: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Pure. The last two keys are those of data that can only be read from their beginning."""
    begun = {**state, "epoch": epoch, "offset": 0}
    return begun | {name: value for name, value in (("data", None), ("is_epoch_over", False)) if name in state}
