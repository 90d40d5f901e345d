"""A growing file, copied to a descriptor as it grows: bytes as they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_INTERVAL_S = 0.05
_CHUNK_BYTES = 1 << 16


class Follower:
    """Goes on where it stopped. `choose` may keep some of what it is fed."""

    def __init__(
        self, source: int, sink: int, choose: Callable[[bytes], bytes] = bytes, chunk_bytes: int = _CHUNK_BYTES
    ) -> None:
        self._source = source
        self._sink = sink
        self._choose = choose
        self._chunk_bytes = chunk_bytes

    def copy(self) -> None:
        """Copies what there is now. Raises `OSError` if the sink does not take it."""
        while chunk := os.read(self._source, self._chunk_bytes):
            write_all(self._sink, self._choose(chunk))

    def copy_until(self, has_ended: Callable[[float], bool]) -> None:
        """Copies what comes until `has_ended`, which is asked with the seconds that it may wait."""
        while True:
            # Asked before copying, so that what was written before the end is copied.
            is_last = has_ended(POLL_INTERVAL_S)
            self.copy()
            if is_last:
                return


def write_all(sink: int, content: bytes) -> None:
    while content:
        content = content[os.write(sink, content) :]


@contextlib.contextmanager
def following(path: Path, sink: int, *, tail: int | None = None) -> Iterator[Follower]:
    """From the start, or from the last `tail` lines on."""
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if tail is not None:
            os.lseek(source, _offset_of_last_lines(source, tail), os.SEEK_SET)
        yield Follower(source, sink)
    finally:
        os.close(source)


def _offset_of_last_lines(source: int, num_lines: int) -> int:
    size = position = os.fstat(source).st_size
    # The newline that ends the last line does not begin another one.
    is_ended = size > 0 and os.pread(source, 1, size - 1) == b"\n"
    num_wanted = num_lines + is_ended
    while position > 0:
        start = max(0, position - _CHUNK_BYTES)
        chunk = os.pread(source, position - start, start)
        num_here = chunk.count(b"\n")
        if num_here >= num_wanted:
            return start + _after_newline(chunk, num_wanted)
        num_wanted -= num_here
        position = start
    return 0


def _after_newline(chunk: bytes, count_from_end: int) -> int:
    """The place behind the newline that is the `count_from_end`-th from the end."""
    if count_from_end == 0:
        return len(chunk)
    end = len(chunk)
    for _ in range(count_from_end):
        end = chunk.rindex(b"\n", 0, end)
    return end + 1
