"""What carries objects within a group of ranks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[int, bytes], None]
"""Gets a notice: the rank that sent it, and its content."""


class Channel(ABC):
    """A group of ranks that make the same calls in the same order.

    The first five calls are collective and blocking. They raise a `ChannelError` if a rank died, left, made another
    call or is late; the channel can then only be closed.
    """

    rank: int
    size: int
    timeout_s: float
    """How long a call waits for the others."""

    @abstractmethod
    def gather(self, value: T) -> list[T] | None:
        """All ranks' values, in rank order, on the group's chief; None on the others, once the chief has them all."""

    @abstractmethod
    def allgather(self, value: T) -> list[T]:
        """All ranks' values, in rank order, on every rank."""

    @abstractmethod
    def broadcast(self, value: T) -> T:
        """The chief's value on every rank. The chief does not wait until it has arrived."""

    @abstractmethod
    def allgather_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> list[T]:
        """What `compute` returns on each rank, in rank order, on every rank.

        If it raises anywhere, it fails everywhere: with that very error where it was raised, elsewhere with
        `RankFailedError`. A patient call waits for a rank for as long as it lives, since `compute` may take long; only
        for ranks that are known to come.
        """

    @abstractmethod
    def broadcast_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> T:
        """What `compute`, called on the chief alone, returns, on every rank; or its failure, likewise."""

    @abstractmethod
    def listen(self, topic: str, listener: Listener) -> None:
        """Hands notices of this topic to `listener`, also those that came before; in a thread of the channel's."""

    @abstractmethod
    def tell_chief(self, topic: str, content: bytes) -> None:
        """Sends a notice, which no call on the other side waits for; forgotten if the chief is gone."""

    @abstractmethod
    def tell_all(self, topic: str, content: bytes) -> None:
        """On the chief: sends a notice to every rank, also to itself; forgotten by those that are gone."""

    @abstractmethod
    def check(self) -> None:
        """Raises the `ChannelError` that has ended the group, if one has; without waiting. Not collective."""

    @abstractmethod
    def has_chief(self) -> bool:
        """Whether the chief still hears notices. Not collective."""

    @abstractmethod
    def leave(self, error: BaseException | None = None) -> None:
        """Says to the others that this rank makes no more calls, because of `error` or in peace; notices still work."""

    @abstractmethod
    def close(self, error: BaseException | None = None) -> None:
        """Leaves the group, because of `error` or in peace; does nothing the second time."""


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
