"""The interface of a group of ranks, and its implementation for a group of one rank."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[int, bytes], None]
"""A function that is called with the rank that sent a notice, and the notice's content."""


class Channel(ABC):
    """A group of ranks that make the same calls in the same order.

    The first five calls are collective and block. They raise a `ChannelError` if a rank died, left, made another
    call or is late; after that the channel can only be closed.
    """

    rank: int
    size: int
    timeout_s: float
    """The longest time that a call waits for the other ranks."""

    @abstractmethod
    def gather(self, value: T) -> list[T] | None:
        """Returns the values of all ranks, in rank order, on the chief.

        Returns None on the other ranks, after the chief has received all values.
        """

    @abstractmethod
    def allgather(self, value: T) -> list[T]:
        """Returns the values of all ranks, in rank order, on every rank."""

    @abstractmethod
    def broadcast(self, value: T) -> T:
        """Returns the chief's value on every rank. The chief does not wait until it has arrived."""

    @abstractmethod
    def allgather_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> list[T]:
        """Calls `compute` on every rank, and returns the results of all ranks, in rank order, on every rank.

        If `compute` raises on one rank, the call raises that error there, and `RankFailedError` on the other ranks. A
        patient call waits for a rank for as long as that rank lives, since `compute` may take long.
        """

    @abstractmethod
    def broadcast_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> T:
        """Calls `compute` on the chief, and returns its result on every rank. Fails as `allgather_outcome()` does."""

    @abstractmethod
    def listen(self, topic: str, listener: Listener) -> None:
        """Lets a thread of the channel call `listener` with all notices of this topic, including earlier ones."""

    @abstractmethod
    def tell_chief(self, topic: str, content: bytes) -> None:
        """Sends a notice to the chief. It is dropped if the chief is gone. Not collective."""

    @abstractmethod
    def tell_all(self, topic: str, content: bytes) -> None:
        """Sends a notice to every rank, this one included. Only the chief may call it. Not collective."""

    @abstractmethod
    def check(self) -> None:
        """Raises the `ChannelError` that has ended the group, if there is one. Does not block; not collective."""

    @abstractmethod
    def has_chief(self) -> bool:
        """Returns whether the chief still receives notices. Not collective."""

    @abstractmethod
    def leave(self, error: BaseException | None = None) -> None:
        """Tells the other ranks that this rank makes no more calls, perhaps because of `error`. Notices still work."""

    @abstractmethod
    def close(self, error: BaseException | None = None) -> None:
        """Leaves the group, perhaps because of `error`; does nothing the second time."""


class SoloChannel(Channel):
    """A group of one rank."""

    rank = 0
    size = 1
    timeout_s = math.inf

    def __init__(self) -> None:
        self._listeners: dict[str, Listener] = {}

    def gather(self, value: T) -> list[T]:
        return [value]

    def allgather(self, value: T) -> list[T]:
        return [value]

    def broadcast(self, value: T) -> T:
        return value

    def allgather_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> list[T]:
        return [compute()]

    def broadcast_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> T:
        return compute()

    def listen(self, topic: str, listener: Listener) -> None:
        self._listeners[topic] = listener

    def tell_chief(self, topic: str, content: bytes) -> None:
        if topic in self._listeners:
            self._listeners[topic](0, content)

    def tell_all(self, topic: str, content: bytes) -> None:
        self.tell_chief(topic, content)

    def check(self) -> None:
        pass

    def has_chief(self) -> bool:
        return True

    def leave(self, error: BaseException | None = None) -> None:
        pass

    def close(self, error: BaseException | None = None) -> None:
        self._listeners.clear()
