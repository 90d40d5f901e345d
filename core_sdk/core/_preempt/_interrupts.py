"""The first Ctrl-C is a request to stop if the script asks for such requests; the second one interrupts it.

A terminal sends Ctrl-C to all processes of a command, also to those that the script has forked, such as data-loader
workers. The script needs these until it has saved. So they inherit the handler, and leave the first Ctrl-C to the
script if it asks; that is a byte of memory which they share.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable
from types import FrameType

from core_sdk.core._preempt._main_thread import is_main_thread

INTERRUPT = "Ctrl-C"
"""The source of the stop."""


class InterruptHook:
    """Calls `on_stop` at the first SIGINT after `heed`. Each other one raises `KeyboardInterrupt`, as without the hook.

    A SIGINT that the script handles itself, or that was ignored when its process began, is left alone.
    """

    def __init__(self, on_stop: Callable[[str], None]) -> None:
        self._on_stop = on_stop
        self._process = os.getpid()
        self._is_heeded = mmap.mmap(-1, 1)
        self._has_come = False

    def install(self) -> None:
        """Replaces Python's own handler of SIGINT. Does nothing outside the main thread."""
        if is_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)

    def heed(self) -> None:
        """Lets the next SIGINT be a stop, since the script asks for stops. Any thread may call it."""
        self._is_heeded[0] = True

    def remove(self) -> None:
        """Restores the handler, unless another one has replaced ours meanwhile."""
        self._is_heeded[0] = False
        if is_main_thread() and signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._has_come or not self._is_heeded[0]:
            signal.default_int_handler(number, frame)
        self._has_come = True
        if os.getpid() == self._process:
            self._on_stop(INTERRUPT)
