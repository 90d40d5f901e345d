"""What the nodes' launchers tell each other, through the store of their rendezvous: failures, mostly.

Without it a node would learn of another's failure when its own ranks fail for want of their peers: late, or never
where they wait in a collective. It does its best: a store that is gone says nothing.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Protocol

from launch._outcome import FailedElsewhere

_NOTICE = "core-sdk/failure"
_NUM_READERS = "core-sdk/failure/readers"
_NUMBER = "core-sdk/number"
# They pass the same place at the same time, but for one whose launcher is another.
_OTHERS = timedelta(seconds=10)
# The store goes with the node that keeps it, which may be the one that failed.
_READERS_S = 3.0
_PAUSE_S = 0.05


class Store(Protocol):
    """Of torch's; every method raises `RuntimeError` when the store is gone."""

    def check(self, keys: list[str]) -> bool: ...

    def get(self, key: str) -> bytes: ...

    def set(self, key: str, value: str) -> None: ...

    def wait(self, keys: list[str], timeout: timedelta) -> None: ...

    def compare_set(self, key: str, expected: str, wanted: str) -> bytes: ...

    def add(self, key: str, amount: int) -> int: ...


class Noticeboard:
    """Of one start of the ranks."""

    def __init__(self, store: Store | None, num_nodes: int = 1) -> None:
        self.is_alone = num_nodes == 1
        self._store = None if self.is_alone else store
        self._num_nodes = num_nodes

    def highest(self, node: int, number: int) -> int:
        """Of the numbers that the nodes give, each its own. Waits for them, but not for ever."""
        if self._store is None:
            return number
        keys = [f"{_NUMBER}/{index}" for index in range(self._num_nodes)]
        try:
            self._store.set(keys[node], str(number))
            self._store.wait(keys, _OTHERS)
            return max(int(self._store.get(key)) for key in keys)
        except RuntimeError:
            return number

    def read(self) -> FailedElsewhere | None:
        """What another node has posted."""
        if self._store is None:
            return None
        try:
            return self._take(self._store.get(_NOTICE)) if self._store.check([_NOTICE]) else None
        except RuntimeError:
            self._store = None
            return None

    def post(self, failure: FailedElsewhere) -> FailedElsewhere | None:
        """Returns what another node has posted before; then ours was not the first failure."""
        if self._store is None:
            return None
        notice = json.dumps([failure.code, failure.words])
        try:
            posted = self._store.compare_set(_NOTICE, "", notice)
            if posted != notice.encode():
                return self._take(posted)
            self._await_readers(self._store)
        except RuntimeError:
            self._store = None
        return None

    def _take(self, notice: bytes) -> FailedElsewhere:
        if self._store is not None:
            self._store.add(_NUM_READERS, 1)
        code, words = json.loads(notice)
        return FailedElsewhere(int(code), tuple(str(line) for line in words))

    def _await_readers(self, store: Store) -> None:
        deadline = time.monotonic() + _READERS_S
        while store.add(_NUM_READERS, 0) < self._num_nodes - 1 and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
