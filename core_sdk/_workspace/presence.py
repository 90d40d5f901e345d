"""Trials that run elsewhere count as running in their workspace, as long as their pusher says so.

Everything that looks at a home tells by the lock of an attempt whether it runs. Here, the server holds that lock.
"""

from __future__ import annotations

import contextlib
import threading
import time

from core_sdk._ground.alive import AliveLock
from core_sdk._home.folders import Home
from core_sdk._workspace.wire import SignOfLife

HELD_S = 600.0
"""How long an attempt counts as running whose pusher cannot be heard."""


class Presence:
    """Holds the locks of attempts that run elsewhere. Any thread may call it."""

    def __init__(self, home: Home, held_s: float = HELD_S) -> None:
        self._home = home
        self._held_s = held_s
        self._held: dict[int, tuple[int, AliveLock, float]] = {}
        """The attempt of each trial, its lock, and the time until which it is held."""
        self._guard = threading.Lock()
        self._is_waiting = False

    def hear(self, sign: SignOfLife) -> None:
        """Takes and releases locks as a pusher says."""
        with self._guard:
            for number in sign.ended:
                self._release(number)
            for number, attempt in sign.running.items():
                self._hold(number, attempt)
            self._wait()

    def _hold(self, number: int, attempt: int) -> None:
        until = time.monotonic() + self._held_s
        held = self._held.get(number)
        if held is not None and held[0] == attempt:
            self._held[number] = attempt, held[1], until
            return
        self._release(number)
        folder = self._home.folder(number)
        if folder.exists() and attempt in folder.attempts():
            with contextlib.suppress(OSError):  # an attempt of this very home runs
                self._held[number] = attempt, AliveLock(folder.supervised_path(attempt)), until

    def _release(self, number: int) -> None:
        if (held := self._held.pop(number, None)) is not None:
            held[1].release()

    def _wait(self) -> None:
        """Has a thread look again when the first lock is to be released."""
        if self._held and not self._is_waiting:
            self._is_waiting = True
            timer = threading.Timer(self._held_s, self._look)
            timer.daemon = True
            timer.start()

    def _look(self) -> None:
        with self._guard:
            self._is_waiting = False
            for number in [each for each, (_, _, until) in self._held.items() if until <= time.monotonic()]:
                self._release(number)
            self._wait()
