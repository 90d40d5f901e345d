"""Writes to a reader that may be slow or gone. It never delays a stop; dropped text is counted and reported."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._machine.processes.output._prefixed_lines import PrefixedLines

# The time that a reader may take after a stop was asked for. The ranks, which wait for us in `print`, must go on.
_PATIENCE_S = 5.0
_LOOK_S = 0.1
# A terminal that is ready may still refuse to take anything.
_PAUSE_S = 0.01


class Sink(ABC):
    """Takes the lines of several writers. Used by one thread.

    Text that is dropped (no reader, a full disk) is counted, and reported before the next text that is written.
    """

    def __init__(self) -> None:
        self.reason = ""
        """The reason why text was dropped."""
        self._num_dropped_bytes = 0
        self._writer: PrefixedLines | None = None

    def write(self, text: bytes, writer: PrefixedLines | None = None) -> bool:
        """Writes text, which `writer` has just given; never raises. Returns whether all of it was written.

        Ends the open line of another writer before.
        """
        if text and writer is not self._writer:
            text = self._end_of_line() + text
            self._writer = writer
        num_written = self.try_write(text) if self._report_dropped() else 0
        self._num_dropped_bytes += len(text) - num_written
        if num_written < len(text) and writer is not None:
            writer.break_off()
        return num_written == len(text)

    def finish(self, other: Sink) -> None:
        """Ends the line, and reports what was dropped: in `other` if this sink still takes nothing."""
        self.try_write(self._end_of_line())
        if not self._report_dropped():
            other.try_write(other._end_of_line() + self._note())

    @abstractmethod
    def try_write(self, text: bytes) -> int:
        """Writes what is taken. Returns the number of bytes, and counts none as dropped; never raises."""

    def close(self) -> None:  # noqa: B027 - not every sink holds something
        """Releases what the sink holds."""

    def _report_dropped(self) -> bool:
        """Writes how much was dropped. Returns False if that cannot be written either."""
        if self._num_dropped_bytes == 0:
            return True
        # What was dropped may have begun in the middle of a line.
        note = b"\n" + self._note()
        if self.try_write(note) < len(note):
            return False
        self._num_dropped_bytes = 0
        return True

    def _note(self) -> bytes:
        return f"[core-sdk] {self._num_dropped_bytes} bytes of output were dropped: {self.reason}\n".encode()

    def _end_of_line(self) -> bytes:
        if self._writer is None or not self._writer.is_open:
            return b""
        self._writer.break_off()
        return b"\n"


class Outlet(Sink):
    """Writes to a descriptor. Waits for a slow reader; after `is_hurried` is set, for `patience_s` at most.

    It waits before a write, since a write that blocks could not be broken off.
    """

    def __init__(self, descriptor: int, is_hurried: threading.Event, patience_s: float = _PATIENCE_S) -> None:
        super().__init__()
        self._is_hurried = is_hurried
        self._patience_s = patience_s
        self._is_stuck = False
        self._file, is_blocking = _own(descriptor)
        # A pipe that is ready takes at least so much without blocking.
        self._piece_bytes = select.PIPE_BUF if is_blocking else sys.maxsize
        self._poll = select.poll()
        if self._file is not None:
            self._poll.register(self._file, select.POLLOUT)

    def try_write(self, text: bytes) -> int:
        rest = memoryview(text)
        while rest:
            if self._file is None:
                self.reason = os.strerror(errno.EBADF)
                break
            if not self._await_reader():
                self.reason = "nobody read it"
                break
            try:
                rest = rest[os.write(self._file.checked(), rest[: self._piece_bytes]) :]
            except BlockingIOError:
                time.sleep(_PAUSE_S)
            except OSError as error:
                self.reason = error.strerror or str(error)
                break
        return len(text) - len(rest)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _await_reader(self) -> bool:
        """Waits for the reader. Returns whether a write would not block. Does not wait again after a time-out."""
        deadline: float | None = None
        while not self._poll.poll(0 if self._is_stuck else _LOOK_S * 1000):
            if self._is_hurried.is_set():
                deadline = time.monotonic() + self._patience_s if deadline is None else deadline
                if self._is_stuck or time.monotonic() > deadline:
                    self._is_stuck = True
                    return False
        self._is_stuck = False
        return True


class FileCopy(Outlet):
    """A file to which the text is appended in addition to being shown."""

    def __init__(self, path: str) -> None:
        """Raises `OSError`."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        super().__init__(descriptor, threading.Event())
        os.close(descriptor)


class MatchingLines(FileCopy):
    """A file to which the lines are appended that contain one of some texts."""

    def __init__(self, path: str, texts: Sequence[bytes], prefix: bytes) -> None:
        """Opens the file, in which each line begins with `prefix`. Raises `OSError`."""
        super().__init__(path)
        self._prefix = prefix
        self._texts = texts
        self._unfinished = b""

    def write(self, text: bytes, writer: PrefixedLines | None = None) -> bool:
        *lines, self._unfinished = (self._unfinished + text).split(b"\n")
        found = [self._prefix + line + b"\n" for line in lines if any(each in line for each in self._texts)]
        return super().write(b"".join(found), writer)

    def close(self) -> None:
        if self._unfinished:
            self.write(b"\n")
        super().close()


def _own(descriptor: int) -> tuple[KeptDescriptor | None, bool]:
    """Returns a new descriptor for the same file, or None if it is closed; and whether writing to it may block."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return None, False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        # A new file description, because O_NONBLOCK would also affect other processes that share the given one.
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # another user's, without a reader, or on a system without these files
            return KeptDescriptor(os.open(f"/proc/self/fd/{descriptor}", flags)), False
    return KeptDescriptor(os.dup(descriptor)), not stat.S_ISREG(mode)
