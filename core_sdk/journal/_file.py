"""Lines that are appended whole, or not at all."""

from __future__ import annotations

import errno
import os

_TAIL_BYTES = 64 << 10


def write_all(descriptor: int, line: bytes) -> None:
    """Raises `OSError` also where only the beginning of `line` could be written."""
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def cut_half_line(descriptor: int) -> None:
    """Cuts the file behind its last newline: what follows would spoil the next line."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - _TAIL_BYTES)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        end = begin + newline + 1
        if newline >= 0:
            break
    if end < size:
        os.ftruncate(descriptor, end)
