"""The source of a resumable loader's batches."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

from core_sdk.loop._plan import Draw, Position


class Source(abc.ABC):
    """Gives the batches from any position on."""

    start = Position()
    """The position at which a training begins."""

    is_of_one_rank = False
    """Whether each rank gives the source data of its own, and not all data."""

    @property
    @abc.abstractmethod
    def batches_per_epoch(self) -> int | None:
        """The number of batches of every epoch; None if it is unknown, or if epochs differ."""

    @abc.abstractmethod
    def stream(self, position: Position) -> Iterator[tuple[Draw, Any]]:
        """Yields the batches of all epochs from `position` on, without an end."""

    @abc.abstractmethod
    def single_pass(self) -> Iterator[tuple[Draw, Any]]:
        """Yields the batches of the first epoch."""

    def data_name(self) -> str | None:
        """Returns the data by their order and length; None if no place in them can be found but by reading."""
        return None

    def after(self, position: Position, num_batches: int) -> Position:
        """Returns the position after so many more batches, where `data_name` is known."""
        raise NotImplementedError

    def num_batches(self, epoch: int) -> int | None:
        """Returns the number of batches of an epoch; None if it is unknown."""
        return self.batches_per_epoch

    def explain(self, error: BaseException) -> None:  # noqa: B027
        """Adds a note to an error of torch about a lost worker."""

    @abc.abstractmethod
    def is_epoch_over(self, position: Position) -> bool:
        """Returns whether the epoch of `position` has no more batches."""

    @abc.abstractmethod
    def next_epoch(self, position: Position) -> Position:
        """Returns the position at which the next epoch after `position` begins."""

    @abc.abstractmethod
    def state(self, position: Position) -> dict[str, Any]:
        """Returns the values that `load()` needs besides the position, and the values that must be the same then."""

    def adopted(self, state: dict[str, Any], *, has_changed: bool) -> dict[str, Any]:
        """Returns a state of other data as one of these, at the same position or at the end of the epoch.

        `has_changed`: the data are known to differ, although the state may fit.
        """
        return state

    @abc.abstractmethod
    def load(self, state: dict[str, Any], position: Position) -> None:
        """Takes over a state. Raises `DataError` if the state belongs to other data."""


def is_stateful(target: Any) -> bool:
    return callable(getattr(target, "state_dict", None)) and callable(getattr(target, "load_state_dict", None))
