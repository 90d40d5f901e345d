"""The end of a rank's stderr, which tells why it died, and the time of its last traceback."""

from __future__ import annotations

import re
import time

_MAX_BYTES = 1 << 16
_TRACEBACK = b"Traceback (most recent call last)"
# torch's exception hook and exception groups put something before it.
_TRACEBACK_LINE = re.compile(rb"[\r\n](?:\[rank\d+\]: )?(?: *\+ Exception Group )?" + re.escape(_TRACEBACK))
_MAX_LINE_START_BYTES = 128


class LastWords:
    """Fed by one thread. Other threads may ask at any time."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._before = b"\n"
        self._traceback_time: float | None = None

    @property
    def tail(self) -> bytes:
        return bytes(self._text)[-_MAX_BYTES:]

    @property
    def traceback_time(self) -> float | None:
        """The `time.monotonic()` at which the first line of the last Python traceback came."""
        return self._traceback_time

    def feed(self, chunk: bytes) -> None:
        self._text += chunk[-_MAX_BYTES:]
        if len(self._text) > 2 * _MAX_BYTES:
            del self._text[:-_MAX_BYTES]
        window = self._before + chunk
        if _TRACEBACK in window and self._begins_traceback(window):
            self._traceback_time = time.monotonic()
        self._before = window[-_MAX_LINE_START_BYTES:]

    def _begins_traceback(self, window: bytes) -> bool:
        """Whether a traceback's first line ends in the new part. A line that comes in pieces counts once."""
        return any(match.end() > len(self._before) for match in _TRACEBACK_LINE.finditer(window))
