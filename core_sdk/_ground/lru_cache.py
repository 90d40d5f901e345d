"""A cache of a fixed size, which drops the value that was used longest ago."""

from __future__ import annotations

from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LRUCache(Generic[_Key, _Value]):
    """Keeps the `max_values` values that were used last. Where threads share a cache, its owner has a lock for it."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._values: dict[_Key, _Value] = {}

    def get(self, key: _Key) -> _Value | None:
        value = self.pop(key)
        return None if value is None else self.put(key, value)

    def put(self, key: _Key, value: _Value) -> _Value:
        self.pop(key)
        self._values[key] = value
        if len(self._values) > self._max_values:
            del self._values[next(iter(self._values))]
        return value

    def pop(self, key: _Key) -> _Value | None:
        """Removes a value and returns it, or None if there is none."""
        return self._values.pop(key, None)
