"""The places in their data that the loaders of this process have reached."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

T = TypeVar("T")


class DataPlace(NamedTuple):
    data: str
    """The data by their order and length."""
    seed: int
    epoch: int
    offset: int


class DataPlaces:
    """Loaders enter themselves here, and a guard asks for their places when it finds trouble."""

    _loaders: ClassVar[weakref.WeakKeyDictionary[Any, Callable[[Any], DataPlace | None]]] = weakref.WeakKeyDictionary()

    @classmethod
    def enter(cls, loader: T, place_of: Callable[[T], DataPlace | None]) -> None:
        """Enters a loader. `place_of` returns its place; None if it has none, or cannot leave out batches."""
        cls._loaders[loader] = place_of

    @classmethod
    def now(cls) -> list[DataPlace]:
        """Returns the places of all loaders that have one."""
        found = [place_of(loader) for loader, place_of in list(cls._loaders.items())]
        return sorted(place for place in found if place is not None)
