"""A pipe that wakes a polling thread."""

from __future__ import annotations

import contextlib
import os
import threading

from core_sdk._ground.descriptors import KeptDescriptor


class WakeupPipe:
    """A pipe that is readable from `wake()` until `forget()`. Any thread and any signal handler may call `wake()`.

    After `close()`, and after the script has closed the descriptors, `wake()` and `forget()` do nothing.
    """

    def __init__(self) -> None:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._read, self._write = KeptDescriptor(read), KeptDescriptor(write)
        self._number = self._read.fileno()  # a poller answers with it also after `close()`
        # Reentrant, since a signal handler may call `wake()` while it interrupts `wake()` in the same thread.
        self._guard = threading.RLock()

    def fileno(self) -> int:
        return self._number

    def is_ours(self) -> bool:
        """Returns whether the descriptor of the reading end still belongs to the pipe."""
        return self._read.is_ours()

    def wake(self) -> None:
        with self._guard, contextlib.suppress(BlockingIOError):  # a full pipe is readable already
            if self._write.is_ours():
                os.write(self._write.fileno(), b"!")

    def forget(self) -> None:
        with self._guard, contextlib.suppress(BlockingIOError):
            while self._read.is_ours() and os.read(self._read.fileno(), 4096):
                pass

    def close(self) -> None:
        with self._guard:
            self._read.close()
            self._write.close()

    def close_inherited(self) -> None:
        """Closes the pipe in a forked child, where the thread that held the guard may not exist."""
        self._guard = threading.RLock()
        self.close()
