"""What takes a copy of the command's output: it is never waited for, and what it refuses is counted and said."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

_CHUNK_BYTES = 1 << 16
# A screen that takes nothing for so long has stalled.
_PATIENCE_S = 0.5


class Outlet:
    """Writes to a descriptor. What a full disk or a missing reader refuses is dropped, and a note says how much."""

    def __init__(self, descriptor: int, reason: str) -> None:
        self._descriptor = descriptor
        self._reason = reason
        self._num_dropped = 0

    def write(self, content: bytes) -> None:
        """Never raises."""
        if self._num_dropped:
            note = f"\n[core-sdk] {self._num_dropped} bytes of output were dropped: {self._reason}\n".encode()
            if self._write(note) < len(note):
                self._num_dropped += len(content)
                return
            self._num_dropped = 0
        self._num_dropped += len(content) - self._write(content)

    def close(self) -> None:
        """What comes later is dropped. The descriptor's number stays taken, since another thread may be writing."""
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(null, self._descriptor, inheritable=False)
        os.close(null)

    def _write(self, content: bytes) -> int:
        """Returns how many bytes were taken."""
        num_written = 0
        while num_written < len(content):
            try:
                num_written += os.write(self._descriptor, content[num_written:])
            except BlockingIOError:
                if self._num_dropped or not select.select([], [self._descriptor], [], _PATIENCE_S)[1]:
                    break
            except OSError:
                break
        return num_written


def copy_output(source: int, takers: list[Callable[[bytes], None]]) -> None:
    """Gives what comes from `source` to each of the takers, until its last writer has closed it."""
    while True:
        try:
            chunk = os.read(source, _CHUNK_BYTES)
        except OSError:  # EIO: how a terminal says it
            return
        if not chunk:
            return
        for take in takers:
            take(chunk)
