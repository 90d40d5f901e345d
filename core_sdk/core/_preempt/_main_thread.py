"""Calls in the main thread from any other: Python lets no other thread set the handler of a signal."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger("core_sdk.preempt")

# It interrupts what the main thread waits for, and does nothing to a process that does not handle it.
_NUMBER = signal.SIGURG
_PATIENCE_S = 1.0


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class MainThread:
    """Has the main thread run something, also while it waits for a lock, for input or for time to pass."""

    def __init__(self) -> None:
        """In the main thread; made in another one, or where the signal is in use, it reaches nobody."""
        self._calls: list[Callable[[], None]] = []
        self.is_reachable = is_main_thread() and signal.getsignal(_NUMBER) is signal.SIG_DFL
        if self.is_reachable:
            signal.signal(_NUMBER, self._run_calls)

    def run(self, call: Callable[[], None]) -> None:
        """Returns when the main thread has run it; after a second it is left to run it later, with a warning."""
        has_run = threading.Event()

        def run_and_tell() -> None:
            call()
            has_run.set()

        self._calls.append(run_and_tell)
        signal.pthread_kill(threading.main_thread().ident or 0, _NUMBER)
        if not has_run.wait(_PATIENCE_S):
            logger.warning("stop signals are not caught until the main thread returns from a long call of C code")

    def close(self) -> None:
        """Forgets what has not been run."""
        self._calls.clear()
        if self.is_reachable and is_main_thread() and signal.getsignal(_NUMBER) == self._run_calls:
            signal.signal(_NUMBER, signal.SIG_DFL)

    def _run_calls(self, number: int, frame: FrameType | None) -> None:
        while self._calls:
            self._calls.pop(0)()
