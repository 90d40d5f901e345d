"""Wakes a thread that polls."""

from __future__ import annotations

import contextlib
import os
import threading


class WakeupPipe:
    """Its descriptor is readable from `wake` to `forget`. Any thread may wake, also after the end, and signal handlers.

    Once it is closed, its descriptors' numbers may be those of other files: they are never written to again.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Reentrant: a signal handler may wake while the thread that it interrupts does.
        self._guard = threading.RLock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with self._guard, contextlib.suppress(BlockingIOError):  # full: it is awake already
            if not self._is_closed:
                os.write(self._write, b"!")

    def forget(self) -> None:
        with self._guard, contextlib.suppress(BlockingIOError):
            while not self._is_closed and os.read(self._read, 4096):
                pass

    def close(self) -> None:
        with self._guard:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._read)
                os.close(self._write)

    def close_inherited(self) -> None:
        """In a forked child, where a thread that held the guard may be no more."""
        self._guard = threading.RLock()
        self.close()
