"""The base of all objects of the client, which hold what was true when they were looked up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from core_sdk._home import Home

_Row = TypeVar("_Row")
_P = ParamSpec("_P")


class HomeObject(ABC, Generic[_Row]):
    """An object of the client: something that a home holds, as it was when it was looked up."""

    _id: int | str

    def __init__(self, home: Home, row: _Row) -> None:
        self._home = home
        self._take(row)

    @abstractmethod
    def _take(self, row: _Row) -> None:
        """Takes `_id` and all public attributes from a row."""

    @abstractmethod
    def _read(self) -> _Row:
        """Returns the row as it is now."""

    def reload(self) -> None:
        """Looks the object up again. Raises the error of looking up one that does not exist."""
        self._take(self._read())

    def _do(self, verb: Callable[Concatenate[Home, Any, _P], object], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Does the verb, and looks the object up again."""
        verb(self._home, self._id, *args, **kwargs)
        self.reload()
