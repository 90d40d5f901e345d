"""Catches a signal for as long as the script listens: by a handler, or in a thread if the launcher blocks it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from core_sdk.core._preempt._main_thread import is_main_thread

logger = logging.getLogger("core_sdk.preempt")

# A stop goes to one rank after the other, and a scheduler's to each process, some of which hand it on to others. On a
# busy machine it may come so much later to a rank that has obeyed it.
_LATE_S = 5.0


class SignalHook:
    """Calls `on_stop` when the signal comes, if `is_wanted()`, and then the previous handler.

    Must be made in the main thread. A forked child, such as a worker of `multiprocessing`, dies of the signal as it
    would without the hook.
    """

    def __init__(self, number: signal.Signals, on_stop: Callable[[str], None], is_wanted: Callable[[], bool]) -> None:
        self._number = number
        self._on_stop = on_stop
        self._is_wanted = is_wanted
        self._previous: Any = None
        self._is_hooked = False
        self._late_until = -math.inf
        if signal.getsignal(number) is None:
            logger.warning("%s is not caught: something other than Python handles it", number.name)
            return
        # Before hooking it, since the signal may come at once.
        self._previous, self._is_hooked = signal.getsignal(number), True
        signal.signal(number, self._handle)
        _remove_in_child(self)

    def remove(self, obeyed: str | None = None) -> None:
        """Restores the previous handler, unless another one has replaced ours meanwhile.

        `obeyed` is the source of the stop that this rank has obeyed. If it is this signal, it may be on its way here,
        from another rank or once more, and does not end the process if it comes within seconds.
        """
        if self._is_hooked and obeyed == self._number.name and self._previous is signal.SIG_DFL:
            self._late_until = time.monotonic() + _LATE_S
        elif is_main_thread() and signal.getsignal(self._number) == self._handle:
            signal.signal(self._number, self._previous)
        self._is_hooked = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_caught, is_late = self._is_hooked and self._is_wanted(), time.monotonic() < self._late_until
        if is_caught:
            self._on_stop(self._number.name)
        if callable(self._previous):
            self._previous(number, frame)
        elif not (is_caught or is_late) and signal.getsignal(number) == self._handle:
            # Not wanted; or removed while another handler was in place, which has then restored ours.
            signal.signal(number, self._previous)
            signal.raise_signal(number)


def _remove_in_child(hook: SignalHook) -> None:
    reference = weakref.ref(hook)

    def after_in_child() -> None:
        if (inherited := reference()) is not None:
            inherited.remove()

    os.register_at_fork(after_in_child=after_in_child)


def is_blocked(number: signal.Signals) -> bool:
    """Returns whether the calling thread blocks the signal, and so do the threads and processes that it starts."""
    return number in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class BlockedSignal:
    """Calls `on_stop` in its own thread when the signal comes, or has come before, if `is_wanted()`.

    The launcher blocks the signal in its ranks, so that processes that they start do not die of it.
    """

    def __init__(self, number: signal.Signals, on_stop: Callable[[str], None], is_wanted: Callable[[], bool]) -> None:
        self._number = number
        self._on_stop = on_stop
        self._is_wanted = is_wanted
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._wait, name=f"core-sdk-{number.name}", daemon=True)
        self._thread.start()

    def remove(self, obeyed: str | None = None) -> None:
        """Ends the thread; the signal stays blocked, so that a late one ends nothing."""
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
