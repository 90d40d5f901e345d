"""A cache of a fixed size, which drops the value that was used longest ago."""

from __future__ import annotations

from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LRUCache(Generic[_Key, _Value]):
    """Keeps the values that were used last, of `max_size` together: their number, unless they are given sizes.

    Where threads share a cache, its owner has a lock for it.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._values: dict[_Key, tuple[_Value, int]] = {}

    def get(self, key: _Key) -> _Value | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        self._values[key] = found
        return found[0]

    def put(self, key: _Key, value: _Value, size: int = 1) -> _Value:
        """Keeps the value, also if it alone is larger than the cache."""
        self.pop(key)
        self._values[key] = value, size
        self._size += size
        while self._size > self._max_size and len(self._values) > 1:
            self.pop(next(iter(self._values)))
        return value

    def pop(self, key: _Key) -> _Value | None:
        """Removes a value and returns it, or None if there is none."""
        value, size = self._values.pop(key, (None, 0))
        self._size -= size
        return value
