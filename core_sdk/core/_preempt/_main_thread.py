"""Runs calls in the main thread, since Python lets no other thread set the handler of a signal."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger("core_sdk.preempt")

# It interrupts the main thread's waiting, and is ignored by a process that does not handle it.
_NUMBER = signal.SIGURG
_PATIENCE_S = 1.0


def is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class MainThread:
    """Makes the main thread run a call, even while it waits for a lock, for input or for time to pass."""

    def __init__(self) -> None:
        """Called in the main thread. If it is called in another one, or if SIGURG is in use, it is not reachable."""
        self._calls: list[Callable[[], None]] = []
        self._has_run_calls = False
        self.is_reachable = is_main_thread() and signal.getsignal(_NUMBER) is signal.SIG_DFL
        if self.is_reachable:
            signal.signal(_NUMBER, self._run_calls)

    def run(self, call: Callable[[], None]) -> None:
        """Blocks until the main thread has run `call`. After a second it warns, and the main thread runs it later."""
        has_run = threading.Event()

        def run_and_tell() -> None:
            call()
            has_run.set()

        self._calls.append(run_and_tell)
        signal.pthread_kill(threading.main_thread().ident or 0, _NUMBER)
        if not has_run.wait(_PATIENCE_S):
            logger.warning("stop signals are not caught until the main thread returns from a long call of C code")

    def wake(self) -> None:
        """Makes the main thread run handlers of signals that it may have missed, if it has run a call; does not block.

        Python runs no handler for a signal that comes at the moment when the main thread begins to wait for a lock, or
        that the system gives to another thread.
        """
        if self._has_run_calls:
            signal.pthread_kill(threading.main_thread().ident or 0, _NUMBER)

    def close(self) -> None:
        """Drops the calls that have not run yet."""
        self._calls.clear()
        self._has_run_calls = False
        if self.is_reachable and is_main_thread() and signal.getsignal(_NUMBER) == self._run_calls:
            signal.signal(_NUMBER, signal.SIG_DFL)

    def _run_calls(self, number: int, frame: FrameType | None) -> None:
        while self._calls:
            self._calls.pop(0)()
            self._has_run_calls = True
