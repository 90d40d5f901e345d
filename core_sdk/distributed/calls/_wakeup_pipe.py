"""A pipe that wakes a polling thread."""

from __future__ import annotations

import contextlib
import os
import threading


class WakeupPipe:
    """A pipe that is readable from `wake()` until `forget()`. Any thread and any signal handler may call `wake()`.

    After `close()` all calls do nothing: the descriptors' numbers may belong to other files.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Reentrant, since a signal handler may call `wake()` while it interrupts `wake()` in the same thread.
        self._guard = threading.RLock()
        self._is_closed = False

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with self._guard, contextlib.suppress(BlockingIOError):  # a full pipe is readable already
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
        """Closes the pipe in a forked child, where the thread that held the guard may not exist."""
        self._guard = threading.RLock()
        self.close()
