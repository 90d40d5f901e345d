"""Gives changes as numbered events: a browser that was away asks for the events since its last one."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Collection

import msgspec

_NUM_KEPT = 1000
_MOST_IDS = 2000


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ids of what has changed, which a page then asks for again. The event does not hold the new values."""

    trials: list[int] = []
    """The trials of which something was recorded, or whose state has changed."""
    gone: list[int] = []
    """Trials that were deleted."""
    experiments: list[int] = []
    has_master: bool | None = None
    """Whether there is a master; given only when one has started or ended."""
    everything: bool = False
    """Whether all must be asked for again: too much has changed to name it, or what has changed is not known."""


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
        self._append(change)

    def add_everything(self) -> None:
        """Lets all pages ask for everything again."""
        self._append(Change(everything=True))

    def _append(self, change: Change) -> None:
        with self._lock:
            self._number += 1
            self._changes.append((self._number, change))

    @property
    def last_id(self) -> str:
        """The id of the newest event; before the first one, an id that precedes it."""
        with self._lock:
            return f"{self._boot}-{self._number}"

    def since(self, event_id: str) -> list[tuple[str, Change]]:
        """Returns the events after this one.

        If it is from another server or too old, the only event says that everything is to be asked for again.
        """
        with self._lock:
            boot, _, text = event_id.partition("-")
            number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1
            oldest = self._changes[0][0] if self._changes else self._number + 1
            if boot != self._boot or number > self._number or number < oldest - 1:
                return [(f"{self._boot}-{self._number}", Change(everything=True))]
            return [(f"{self._boot}-{found}", change) for found, change in self._changes if found > number]
