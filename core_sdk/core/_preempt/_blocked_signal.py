"""A stop signal that the launcher blocks in its ranks, so that processes that they start do not die of it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable


def is_blocked(number: signal.Signals) -> bool:
    """Returns whether the calling thread blocks the signal, and so do the threads and processes that it starts."""
    return number in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class BlockedSignal:
    """Calls `on_stop` in its own thread when the signal comes, or has come before, if `is_wanted()`."""

    def __init__(self, number: signal.Signals, on_stop: Callable[[str], None], is_wanted: Callable[[], bool]) -> None:
        self._number = number
        self._on_stop = on_stop
        self._is_wanted = is_wanted
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._wait, name=f"core-sdk-{number.name}", daemon=True)
        self._thread.start()

    def remove(self) -> None:
        """Ends the thread; the signal stays blocked."""
        self._closing.set()
        if self._thread.is_alive() and self._thread.ident is not None:
            with contextlib.suppress(ProcessLookupError):  # a real signal has just ended the thread
                signal.pthread_kill(self._thread.ident, self._number)
        self._thread.join()

    def _wait(self) -> None:
        while not self._closing.is_set():
            signal.sigwait({self._number})
            if not self._closing.is_set() and self._is_wanted():
                self._on_stop(self._number.name)
