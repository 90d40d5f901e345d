"""What carries objects within a group of ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

T = TypeVar("T")


class Channel(ABC):
    """A group of ranks that make the same calls in the same order. Every call is collective and blocking."""

    @abstractmethod
    def gather(self, value: T) -> list[T] | None:
        """All ranks' values, in rank order, on the group's chief; None on the others."""

    @abstractmethod
    def allgather(self, value: T) -> list[T]:
        """All ranks' values, in rank order, on every rank."""

    @abstractmethod
    def broadcast(self, value: T) -> T:
        """The chief's value on every rank."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the group; does nothing the second time."""


class SoloChannel(Channel):
    """A group of one rank."""

    def gather(self, value: T) -> list[T]:
        return [value]

    def allgather(self, value: T) -> list[T]:
        return [value]

    def broadcast(self, value: T) -> T:
        return value

    def close(self) -> None:
        pass
