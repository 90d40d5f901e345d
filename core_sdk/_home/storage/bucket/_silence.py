"""Warns when a request to a store takes longer than a person expects."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

logger = logging.getLogger("core_sdk.storage")

_LONG_S = 5.0
_LOOK_INTERVAL_S = 0.25


@dataclass(eq=False)
class Wait:
    """A request, and its repetitions."""

    what: str
    progress: Callable[[], object]
    reached: object
    since: float
    """A time of the monotonic clock, in seconds, like `give_up_at`."""
    give_up_at: float
    reason: str = ""
    """The reason why the last try failed."""


class SilenceWatch:
    """Warns of a wait of 5 s without progress, and then again whenever a wait is twice as long as at the last warning.

    After a request that takes less than 5 s, the next warning comes after 5 s again. A thread watches the waits, since
    a request that hangs does not return. Safe in threads.
    """

    def __init__(self, how_to_end: str) -> None:
        self._how_to_end = how_to_end
        self._lock = threading.Lock()
        self._waits: set[Wait] = set()
        self._say_after_s = _LONG_S
        self._is_watching = False

    @contextlib.contextmanager
    def waiting(self, what: str, deadline_s: float, progress: Callable[[], object]) -> Iterator[Wait]:
        now = time.monotonic()
        wait = Wait(what, progress, progress(), now, now + deadline_s)
        with self._lock:
            self._waits.add(wait)
            must_start, self._is_watching = not self._is_watching, True
        if must_start:
            threading.Thread(target=self._watch, name="core-sdk-silence", daemon=True).start()
        try:
            yield wait
            if time.monotonic() - now < _LONG_S:
                self._say_after_s = _LONG_S
        finally:
            with self._lock:
                self._waits.discard(wait)

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_INTERVAL_S)
            with self._lock:
                waits = list(self._waits)
                self._is_watching = bool(waits)
            if not waits:
                return
            self._look_at(waits)

    def _look_at(self, waits: list[Wait]) -> None:
        now = time.monotonic()
        for wait in waits:
            if (reached := wait.progress()) != wait.reached:
                wait.reached, wait.since = reached, now
        longest = min(waits, key=lambda wait: wait.since, default=None)
        if longest is not None and now - longest.since >= self._say_after_s:
            self._say_after_s = 2 * (now - longest.since)
            self._say(longest, now)

    def _say(self, wait: Wait, now: float) -> None:
        logger.warning(
            "waiting for %s since %s (%.0f s)%s; it is tried until about %s. %s.",
            wait.what,
            _clock_time(wait.since - now),
            now - wait.since,
            f": {wait.reason}" if wait.reason else "",
            _clock_time(wait.give_up_at - now),
            self._how_to_end,
        )


def _clock_time(seconds_from_now: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time.time() + seconds_from_now))
