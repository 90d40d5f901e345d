"""Where a resumable loader has its batches from."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, NamedTuple

from core_sdk.loop.plan import Draw, Position


class Ranks(NamedTuple):
    rank: int = 0
    size: int = 1


class Source(abc.ABC):
    """Batches from any position on."""

    batches_per_epoch: int | None
    """None if it is unknown, or if epochs differ."""
    start = Position()
    """Where a training begins."""

    @abc.abstractmethod
    def stream(self, position: Position) -> Iterator[tuple[Draw, Any]]:
        """Batches without an end, over all epochs."""

    @abc.abstractmethod
    def single_pass(self) -> Iterator[tuple[Draw, Any]]:
        """The batches of the first epoch."""

    def explain(self, error: BaseException) -> None:  # noqa: B027
        """Adds a note to an error of torch about a lost worker."""

    @abc.abstractmethod
    def is_epoch_over(self, position: Position) -> bool:
        """Whether the epoch of `position` has no more batches."""

    @abc.abstractmethod
    def next_epoch(self, position: Position) -> Position:
        """Where the epoch after that of `position` goes on."""

    @abc.abstractmethod
    def state(self, position: Position) -> dict[str, Any]:
        """What `load()` needs beside the position, and what must be the same then."""

    @abc.abstractmethod
    def load(self, state: dict[str, Any], position: Position) -> None:
        """Raises `DataError` if the data are not those of the state."""


def is_stateful(target: Any) -> bool:
    return callable(getattr(target, "state_dict", None)) and callable(getattr(target, "load_state_dict", None))
