"""The store in which the nodes' launchers meet: as much of torch's as we need."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol


class Store(Protocol):
    """Of torch's; every method raises `RuntimeError` when the store is gone."""

    def check(self, keys: list[str]) -> bool: ...

    def get(self, key: str) -> bytes:
        """Waits until somebody has set it, for minutes if need be."""

    def set(self, key: str, value: str) -> None: ...

    def wait(self, keys: list[str], timeout: timedelta) -> None: ...

    def compare_set(self, key: str, expected: str, wanted: str) -> bytes: ...

    def delete_key(self, key: str) -> bool: ...

    def add(self, key: str, amount: int) -> int: ...
