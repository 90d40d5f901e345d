"""The models, optimizers and schedulers of a training on this rank."""

from __future__ import annotations

import abc
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

PARTS = ("models", "optimizers", "lr_schedulers")
"""The parts of a runtime's state that can be loaded apart from each other."""


class Ranks(Protocol):
    """The place of a rank among all ranks."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...


class Runtime(abc.ABC):
    """The objects that a training trains on this rank, and the way in which the ranks train them together."""

    models: list[Any]
    """The models to call, in the order of wrapping."""
    is_sharding = False
    """Whether each rank has only a part of the models, so that one rank cannot use them alone."""
    writes_on_all_ranks = False
    """Whether each rank has a part of the state that no other rank has."""
    writes_in_background = True
    """Whether a copy of the state can be written while the training goes on."""

    @property
    @abc.abstractmethod
    def data_ranks(self) -> Ranks:
        """The place of this rank among those that divide the batches."""

    def begin_batch(self, index: int, *, is_first: bool) -> None:  # noqa: B027
        """Call it before each global batch, with its index; `is_first` for the first one of an attempt."""

    def end_batch(self, num_batches: int, num_ended_epochs: int | None) -> None:  # noqa: B027
        """Call it after each global batch, with the number of batches.

        `num_ended_epochs` is given at the end of an epoch.
        """

    def end_training(self, num_batches: int) -> None:  # noqa: B027
        """Call it at the end of a training. Warns of gradients that no step has used."""

    def set_forward_sync(self, is_on: bool) -> None:  # noqa: B027
        """Sets whether forward passes exchange data between ranks. If not, a rank may make one alone."""

    @abc.abstractmethod
    def check(self, owner: str) -> None:
        """Raises `ValueError` if nothing is wrapped that could be trained. `owner` names the class that has to wrap."""

    @abc.abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns the states of all wrapped objects."""

    @abc.abstractmethod
    def load_state_dict(self, state: dict[str, Any], kept: Collection[str]) -> None:
        """Loads the parts `kept` of a state. Raises `StateMismatchError` if an object does not fit its state."""

    def load_gradients(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Loads the gradients that no step had used, so that a training can go on between two steps."""

    def own_files(self, directory: Path) -> dict[str, Any]:
        """Returns what only this rank has, by the names of its files in the `directory`, to be saved by torch."""
        return {}

    def read_parts(self, state: dict[str, Any], directory: Path) -> dict[str, Any]:
        """Returns the state with the parts that the ranks have written, for this rank."""
        return state
