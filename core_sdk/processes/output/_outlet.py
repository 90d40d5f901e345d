"""Writes to a reader that may be slow or gone. It never delays a stop; dropped text is counted and reported."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
import time

from core_sdk.processes.output._prefixed_lines import PrefixedLines

# The time that a reader may take after a stop was asked for. The ranks, which wait for us in `print`, must go on.
_PATIENCE_S = 5.0
_LOOK_S = 0.1
# A terminal that is ready may still refuse to take anything.
_PAUSE_S = 0.01


class Outlet:
    """Writes to a descriptor. Waits for a slow reader; after `is_hurried` is set, for `patience_s` at most.

    It waits before a write, since a write that blocks could not be broken off.

    Text that is dropped (no reader, a full disk) is counted, and reported before the next text that is written. Used by
    one thread.
    """

    def __init__(self, descriptor: int, is_hurried: threading.Event, patience_s: float = _PATIENCE_S) -> None:
        self._is_hurried = is_hurried
        self._patience_s = patience_s
        self._is_stuck = False
        self._num_dropped_bytes = 0
        self._reason = ""
        self._descriptor, is_blocking = _own(descriptor)
        # A pipe that is ready takes at least so much without blocking.
        self._piece_bytes = select.PIPE_BUF if is_blocking else sys.maxsize
        self._poll = select.poll()
        if self._descriptor >= 0:
            self._poll.register(self._descriptor, select.POLLOUT)

    def write(self, text: bytes) -> bool:
        """Writes text. Returns whether all of it was written; never raises."""
        num_written = self.try_write(text) if self.report_dropped() else 0
        self._num_dropped_bytes += len(text) - num_written
        return num_written == len(text)

    def try_write(self, text: bytes) -> int:
        """Writes what the reader takes. Returns the number of bytes, and counts none as dropped; never raises."""
        rest = memoryview(text)
        while rest:
            if not self._await_reader():
                self._reason = "nobody read it"
                break
            try:
                rest = rest[os.write(self._descriptor, rest[: self._piece_bytes]) :]
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError as error:
                self._reason = error.strerror or str(error)
                break
        return len(text) - len(rest)

    def report_dropped(self) -> bool:
        """Writes how much was dropped. Returns False if that cannot be written either."""
        if self._num_dropped_bytes == 0:
            return True
        # What was dropped may have begun in the middle of a line.
        note = b"\n" + self.note()
        if self.try_write(note) < len(note):
            return False
        self._num_dropped_bytes = 0
        return True

    def note(self) -> bytes:
        return f"[core-sdk] {self._num_dropped_bytes} bytes of output were dropped: {self._reason}\n".encode()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _await_reader(self) -> bool:
        """Waits for the reader. Returns whether a write would not block. Does not wait again after a time-out."""
        deadline: float | None = None
        while self._descriptor >= 0 and not self._poll.poll(0 if self._is_stuck else _LOOK_S * 1000):
            if self._is_hurried.is_set():
                deadline = time.monotonic() + self._patience_s if deadline is None else deadline
                if self._is_stuck or time.monotonic() > deadline:
                    self._is_stuck = True
                    return False
        self._is_stuck = False
        return True


class Sink:
    """The lines of several writers in one outlet. Used by one thread."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._writer: PrefixedLines | None = None

    def write(self, text: bytes, writer: PrefixedLines) -> None:
        """Writes `text`, which `writer` has just given. Ends the open line of another writer before. Never raises."""
        if not text:
            return
        if self._writer is not writer:
            text = self._end_of_line() + text
            self._writer = writer
        if not self._outlet.write(text):
            writer.break_off()

    def close(self, other: Sink) -> None:
        """Ends the line, and reports what was dropped: in `other` if this outlet still takes nothing."""
        self._outlet.try_write(self._end_of_line())
        if not self._outlet.report_dropped():
            other._outlet.try_write(other._end_of_line() + self._outlet.note())

    def _end_of_line(self) -> bytes:
        if self._writer is None or not self._writer.is_open:
            return b""
        self._writer.break_off()
        return b"\n"


def _own(descriptor: int) -> tuple[int, bool]:
    """Returns a new descriptor for the same file, or -1 if it is closed; and whether writing to it may block."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return -1, False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # A new file description, because O_NONBLOCK would also affect other processes that share the given one.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # another user's, without a reader, or on a system without these files
            return os.open(f"/proc/self/fd/{descriptor}", flags), False
    return os.dup(descriptor), not stat.S_ISREG(mode)
