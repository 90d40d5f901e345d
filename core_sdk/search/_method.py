"""The interface of all built-in methods, and the method whose trials do not depend on each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec

from core_sdk._ground.decoding import convert
from core_sdk.search._operations import Close, Create, Operation, ValidateAfter, Warn
from core_sdk.search._points import Points
from core_sdk.search._scores import Score

MIN_REPLACEMENTS = 10


class Counts(msgspec.Struct):
    """The counts of trials that every method keeps."""

    num_created: int = 0
    num_invalid: int = 0
    """Trials whose hyperparameters could not be trained."""
    num_active: int = 0
    """Trials that have a process, or are to have one."""


State = TypeVar("State", bound=Counts)


class Method(ABC):
    """Decides which trials there are, and how far each one is trained.

    `Search` tells the method each event of its trials once, and after each of them lets it `fill` the free places.
    `encode` returns what the method needs to continue after a restart.
    """

    max_trials: int
    max_concurrent: int

    @property
    @abstractmethod
    def num_active(self) -> int:
        """The number of trials that have a process, or are to have one."""

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """The lengths at which trials may end or pause, from the shortest; empty if only their scripts know them."""

    @property
    def brackets(self) -> list[list[int]]:
        """The `lengths` of each bracket, in which only its own trials are compared."""
        return [self.lengths]

    def bracket_of(self, request_id: UUID) -> int:
        """Returns the index of a trial's bracket."""
        return 0

    @property
    def num_compared(self) -> int:
        """The number of trials that have reached their first rung."""
        return 0

    @abstractmethod
    def fill(self, num_free: int) -> Iterator[Operation]:
        """Starts trials in at most this number of free places."""

    @abstractmethod
    def validated(self, request_id: UUID, score: Score, length: float) -> Iterator[Operation]:
        """Handles a trial's report of its metric. The length is greater than in its earlier reports."""

    @abstractmethod
    def exited(self, request_id: UUID, is_invalid: bool) -> Iterator[Operation]:
        """Handles a trial's early end. `closed` follows."""

    @abstractmethod
    def closed(self, request_id: UUID, was_asked: bool) -> Iterator[Operation]:
        """Handles a trial's end. `was_asked` is False if the trial has ended well, but was not told to end."""

    @abstractmethod
    def encode(self) -> Any:
        """Returns what the method needs to continue after a restart, as JSON values."""

    @abstractmethod
    def decode(self, encoded: Any) -> None: ...


class CountingMethod(Method, Generic[State]):
    """A method with one limit for all of its trials. Everything that changes follows from `state`."""

    def __init__(self, state: State, points: Points, max_trials: int, max_concurrent: int, *, replaces: bool) -> None:
        """`replaces` says whether trials whose hyperparameters cannot be trained are replaced, up to a limit."""
        self.state = state
        self.max_trials = max_trials
        self.max_concurrent = max_concurrent
        self._max_replacements = max(MIN_REPLACEMENTS, max_trials) if replaces else 0
        self._points = points

    @property
    def num_active(self) -> int:
        return self.state.num_active

    def fill(self, num_free: int) -> Iterator[Operation]:
        while num_free > 0 and self._can_create:
            num_free -= 1
            yield from self._create()

    def exited(self, request_id: UUID, is_invalid: bool) -> Iterator[Operation]:
        self.state.num_invalid += is_invalid
        if is_invalid and 0 < self._max_replacements < self.state.num_invalid:
            yield Warn(
                "invalid_hparams",
                f"{self.state.num_invalid} trials had hyperparameters that cannot be trained. No more of them are "
                "replaced: exclude such hyperparameters from the space.",
                request_id,
            )

    def encode(self) -> Any:
        return msgspec.to_builtins(self.state)

    def decode(self, encoded: Any) -> None:
        self.state = convert(encoded, type(self.state))

    @property
    def _can_create(self) -> bool:
        return self.state.num_created < self.max_trials + min(self.state.num_invalid, self._max_replacements)

    def _next_point(self) -> Create:
        self.state.num_created += 1
        self.state.num_active += 1
        return self._points.next()

    @abstractmethod
    def _create(self) -> Iterator[Operation]: ...


class Independent(CountingMethod[Counts]):
    """Trains every trial to its end: a random search, a grid, a single trial."""

    def __init__(
        self, points: Points, max_trials: int, max_concurrent: int, *, length: int | None, replaces: bool
    ) -> None:
        """`length` is the length of each trial's training, or None if only the scripts know it."""
        super().__init__(Counts(), points, max_trials, max_concurrent, replaces=replaces)
        self._length = length

    @property
    def lengths(self) -> list[int]:
        return [] if self._length is None else [self._length]

    def validated(self, request_id: UUID, score: Score, length: float) -> Iterator[Operation]:
        yield from ()

    def closed(self, request_id: UUID, was_asked: bool) -> Iterator[Operation]:
        self.state.num_active -= 1
        yield from ()

    def _create(self) -> Iterator[Operation]:
        create = self._next_point()
        yield create
        if self._length is not None:
            yield ValidateAfter(create.request_id, self._length)
            yield Close(create.request_id)
