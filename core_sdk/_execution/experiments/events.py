"""An experiment's journal of events, which the master writes and all others read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from core_sdk._ground.files import write_whole
from core_sdk._ground.ownership import give_to_owner_of
from core_sdk._ground.records import Event
from core_sdk._home.journal import encode_line, read_journal
from core_sdk.errors import RecordDamagedError

_KINDS = get_args(Event)
_TAIL_BYTES = 1 << 20


class EventJournal:
    """Appends events. A write that returned survives the death of the process; `sync` lets it survive a power cut."""

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it if it is missing. Raises `OSError`, here and in `append`."""
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        give_to_owner_of(path.parent, path, self._descriptor)
        self._size_bytes = os.fstat(self._descriptor).st_size
        if self._size_bytes and os.pread(self._descriptor, 1, self._size_bytes - 1) != b"\n":
            self._cut_half_line()
        self._is_dirty = False

    def append(self, event: Event) -> None:
        """Appends the event. If it raises `OSError` or `RecordDamagedError`, the file is unchanged."""
        self.check()
        line = encode_line(event)
        try:
            write_whole(self._descriptor, line)
        except OSError:
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(line)
        self._is_dirty = True

    def check(self) -> None:
        """Raises `RecordDamagedError` if somebody else has changed the file."""
        status = os.fstat(self._descriptor)
        if status.st_size != self._size_bytes or not status.st_nlink:
            raise RecordDamagedError(self._path, "it was cut, written or replaced while a master worked with it")

    def sync(self) -> None:
        if self._is_dirty:
            os.fsync(self._descriptor)
            self._is_dirty = False

    def close(self) -> None:
        os.close(self._descriptor)

    def _cut_half_line(self) -> None:
        """Removes the incomplete last line of a writer that died."""
        end, newline = self._size_bytes, -1
        while end and newline < 0:
            begin = max(0, end - _TAIL_BYTES)
            newline = os.pread(self._descriptor, end - begin, begin).rfind(b"\n")
            end = begin + newline + 1
        self._size_bytes = end
        os.ftruncate(self._descriptor, self._size_bytes)


def read_new_events(path: Path, offset: int) -> Iterator[tuple[list[Event], int]]:
    """Yields the events after byte `offset` in chunks, in order, each chunk with the offset after it.

    Conclusions from the events are right only if none is missing. Therefore raises `RecordDamagedError` for a damaged
    line, and for an event of a kind that this version does not know. Raises `FileNotFoundError` if there is no journal.
    """
    if path.stat().st_size < offset:
        raise RecordDamagedError(path, "it has become shorter")
    for chunk in read_journal(path, offset):
        for bad_line in chunk.bad_lines:
            raise RecordDamagedError(path, f"the line at byte {bad_line.offset} {bad_line.problem}")
        events = [record for record in chunk.records if isinstance(record, _KINDS)]
        if len(events) < len(chunk.records):
            raise RecordDamagedError(path, f"a line behind byte {offset} is no event")
        offset = chunk.end_offset
        yield events, offset
