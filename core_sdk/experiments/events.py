"""An experiment's journal of events: appended by the master, read by whoever asks for the experiment's state."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from core_sdk.journal import encode_line, read_records
from core_sdk.records import Event


class EventJournal:
    """Appends events. A write that returned survives the death of the process; `sync` lets it survive a power cut."""

    def __init__(self, path: Path) -> None:
        """Makes the file if it is missing. Raises `OSError`, here and in `append`."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size_bytes = os.fstat(self._descriptor).st_size
        if self._size_bytes and os.pread(self._descriptor, 1, self._size_bytes - 1) != b"\n":
            self._cut_half_line()
        self._is_dirty = False

    def append(self, event: Event) -> None:
        """Appends the event, or raises `OSError` and leaves nothing of it."""
        line = encode_line(event)
        if os.write(self._descriptor, line) != len(line):
            os.ftruncate(self._descriptor, self._size_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size_bytes += len(line)
        self._is_dirty = True

    def sync(self) -> None:
        if self._is_dirty:
            os.fsync(self._descriptor)
            self._is_dirty = False

    def close(self) -> None:
        os.close(self._descriptor)

    def _cut_half_line(self) -> None:
        """A writer died in the middle of its line."""
        begin = max(0, self._size_bytes - (1 << 20))
        tail = os.pread(self._descriptor, 1 << 20, begin)
        self._size_bytes = begin + tail.rfind(b"\n") + 1
        os.ftruncate(self._descriptor, self._size_bytes)


def read_events(path: Path) -> Iterator[Event]:
    """All events, in order. Raises `FileNotFoundError`."""
    kinds = get_args(Event)
    return (record for record in read_records(path) if isinstance(record, kinds))
