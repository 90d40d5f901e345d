"""This process's stdout or stderr, written to without blocking in the kernel, so that a stop can end the wait."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
import time

# How long a reader may take once a stop was asked for: the ranks, which wait for us in `print`, must go on.
_PATIENCE_S = 5.0
_LOOK_S = 0.1
# A terminal that is ready may still refuse to take anything.
_PAUSE_S = 0.01


class Outlet:
    """Used by one thread. Waits for a slow reader; once `is_hurried` is set, for some seconds only."""

    def __init__(self, descriptor: int, is_hurried: threading.Event) -> None:
        self.reason = ""
        """Why the last `write` has not written all."""
        self._is_hurried = is_hurried
        self._is_stuck = False
        self._descriptor, is_blocking = _own(descriptor)
        # A pipe that is ready takes at least so much without blocking.
        self._piece_bytes = select.PIPE_BUF if is_blocking else sys.maxsize
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, text: bytes) -> int:
        """How many bytes were written; never raises."""
        rest = memoryview(text)
        while rest:
            if not self._await_reader():
                self.reason = "nobody read it"
                break
            try:
                rest = rest[os.write(self._descriptor, rest[: self._piece_bytes]) :]
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError as error:
                self.reason = error.strerror or str(error)
                break
        return len(text) - len(rest)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _await_reader(self) -> bool:
        """Whether a write would not block. A reader for which we have waited in vain is not waited for again."""
        deadline: float | None = None
        while self._descriptor >= 0 and not self._poll.poll(0 if self._is_stuck else _LOOK_S * 1000):
            if self._is_hurried.is_set():
                deadline = time.monotonic() + _PATIENCE_S if deadline is None else deadline
                if self._is_stuck or time.monotonic() > deadline:
                    self._is_stuck = True
                    return False
        self._is_stuck = False
        return True


def _own(descriptor: int) -> tuple[int, bool]:
    """Another descriptor for the same file, or -1 for one that is closed; and whether writing to it may block."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return -1, False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # A new file description, because O_NONBLOCK would surprise the others that share the given one.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # another user's, without a reader, or on a system without these files
            return os.open(f"/proc/self/fd/{descriptor}", flags), False
    return os.dup(descriptor), not stat.S_ISREG(mode)
