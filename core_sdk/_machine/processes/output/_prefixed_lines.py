"""Adds a prefix to the lines of one pipe. The result does not depend on the chunks in which the output comes.

A carriage return ends a line too, so that each update of a progress bar has its prefix; `\\r\\n` is one end. The only
bytes added are the prefixes and, if it is missing, a last newline. No byte is removed or decoded.
"""

from __future__ import annotations

import codecs
import enum

MAX_HELD_BYTES = 1 << 22
_ENDS = (b"\n", b"\r")


class _LinePosition(enum.Enum):
    LINE_START = enum.auto()
    IN_LINE = enum.auto()
    AFTER_RETURN = enum.auto()
    """A `\\n` would belong to the `\\r`."""
    BROKEN_OFF = enum.auto()
    """Another writer has ended the line, so that its `\\n` has been written already."""


class PrefixedLines:
    """Holds an unfinished line of at most about `max_held_bytes`. Returns a longer one in pieces, with one prefix."""

    def __init__(self, prefix: bytes, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._prefix = prefix
        self._max_held_bytes = max_held_bytes
        self._held = bytearray()
        self._place = _LinePosition.LINE_START

    @property
    def num_held_bytes(self) -> int:
        return len(self._held)

    @property
    def is_open(self) -> bool:
        """Whether the line that was returned last may be continued or overwritten."""
        return self._place in (_LinePosition.IN_LINE, _LinePosition.AFTER_RETURN)

    def feed(self, chunk: bytes) -> bytes:
        """Returns the lines that `chunk` completes."""
        length = max(map(chunk.rfind, _ENDS)) + 1
        whole = b""
        if length > 0:
            whole = self._prefixed(bytes(self._held) + chunk[:length])
            self._held.clear()
        self._held += chunk[length:]
        return whole if len(self._held) <= self._max_held_bytes else whole + self.flush()

    def flush(self) -> bytes:
        """Returns the unfinished line that is held, except for a last character that is incomplete."""
        _, length = codecs.utf_8_decode(self._held, "replace", False)
        text = self._prefixed(bytes(self._held[:length]))
        del self._held[:length]
        return text

    def finish(self) -> bytes:
        """Returns all that is held, and ends the line."""
        text = self._prefixed(bytes(self._held))
        self._held.clear()
        if self.is_open:
            text += b"\n"
            self._place = _LinePosition.LINE_START
        return text

    def break_off(self) -> None:
        """Notes that another writer has ended the open line, to write one of its own."""
        if self.is_open:
            self._place = _LinePosition.BROKEN_OFF

    def _prefixed(self, text: bytes) -> bytes:
        end = b""
        if text.startswith(b"\n") and self._place in (_LinePosition.AFTER_RETURN, _LinePosition.BROKEN_OFF):
            end = b"\n" if self._place is _LinePosition.AFTER_RETURN else b""
            text = text[1:]
            self._place = _LinePosition.LINE_START
        if not text:
            return end
        start = b"" if self._place is _LinePosition.IN_LINE else self._prefix
        self._place = _place_behind(text)
        return end + start + self._with_prefix_behind_each_end(text)

    def _with_prefix_behind_each_end(self, text: bytes) -> bytes:
        """Adds the prefix after each end of a line, except at the end of the text."""
        lines = text.replace(b"\n", b"\n" + self._prefix)
        if b"\r" in text:
            lines = lines.replace(b"\r", b"\r" + self._prefix).replace(b"\r" + self._prefix + b"\n", b"\r\n")
        return lines.removesuffix(self._prefix) if text.endswith(_ENDS) else lines


def _place_behind(text: bytes) -> _LinePosition:
    if text.endswith(b"\n"):
        return _LinePosition.LINE_START
    return _LinePosition.AFTER_RETURN if text.endswith(b"\r") else _LinePosition.IN_LINE
