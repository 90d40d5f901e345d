"""A growing file, copied to a descriptor as it grows: bytes as they are."""

from __future__ import annotations

import os
from collections.abc import Callable

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
