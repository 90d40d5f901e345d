"""What has changed, as numbered events: a browser that was away asks for those since its last one."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Collection

import msgspec

_NUM_KEPT = 1000
_MOST_IDS = 2000


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be asked for again; nothing of it is in the event itself."""

    trials: list[int] = []
    """Those of which something was recorded, or whose state has changed."""
    gone: list[int] = []
    """Trials that were deleted."""
    experiments: list[int] = []
    has_master: bool | None = None
    """Given when a master came or went."""
    everything: bool = False
    """More has changed than is worth telling, or it is not known what."""


class Feed:
    """The newest events. Any thread may add one."""

    def __init__(self) -> None:
        self._boot = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._changes: deque[tuple[int, Change]] = deque(maxlen=_NUM_KEPT)
        self._number = 0

    def add(
        self, trials: Collection[int], gone: Collection[int], experiments: Collection[int], has_master: bool | None
    ) -> None:
        if not (trials or gone or experiments or has_master is not None):
            return
        if len(trials) + len(gone) + len(experiments) > _MOST_IDS:
            change = Change(everything=True, has_master=has_master)
        else:
            change = Change(sorted(trials), sorted(gone), sorted(experiments), has_master)
        with self._lock:
            self._number += 1
            self._changes.append((self._number, change))

    @property
    def last_id(self) -> str:
        """The id of the newest event, or of the beginning."""
        with self._lock:
            return f"{self._boot}-{self._number}"

    def since(self, event_id: str) -> list[tuple[str, Change]]:
        """The events after this one; if it is of another server, or too old, one that says to ask for everything."""
        with self._lock:
            boot, _, text = event_id.partition("-")
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
            oldest = self._changes[0][0] if self._changes else self._number + 1
            if boot != self._boot or number > self._number or number < oldest - 1:
                return [(f"{self._boot}-{self._number}", Change(everything=True))]
            return [(f"{self._boot}-{found}", change) for found, change in self._changes if found > number]
