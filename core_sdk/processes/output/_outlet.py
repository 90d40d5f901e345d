"""The launcher's own stdout or stderr, written to without waiting in the kernel, where no word of a stop is heard."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
import time

# What a reader may take once a stop was asked for: then the ranks, who wait for us in their `print`, must get on.
_PATIENCE_S = 5.0
_LOOK_S = 0.1
# What a terminal that can take something may still refuse.
_PAUSE_S = 0.01


class Outlet:
    """Used by one thread. Waits for a slow reader; once `is_hurried` is set, for seconds only."""

    def __init__(self, descriptor: int, is_hurried: threading.Event) -> None:
        self.reason = ""
        """Why the last `write` has not written all."""
        self._is_hurried = is_hurried
        self._is_stuck = False
        self._descriptor, is_blocking = _own(descriptor)
        # As much as a pipe that can take something takes at once.
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
        """Whether something is taken, or refused for good. Who has kept us waiting in vain is not waited for again."""
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
    """A descriptor of our own for the same file, and whether writing to it may block; -1 for one that is closed."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return -1, False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # Not blocking, as the others who share the given descriptor's description would not expect.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # another user's, without a reader, or on a system without these files
            return os.open(f"/proc/self/fd/{descriptor}", flags), False
    return os.dup(descriptor), not stat.S_ISREG(mode)
