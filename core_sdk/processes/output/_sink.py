"""Writes the ranks' lines to an outlet, and counts what the outlet refuses."""

from __future__ import annotations

from core_sdk.processes.output._outlet import Outlet
from core_sdk.processes.output._prefixed_lines import PrefixedLines


class Sink:
    """Used by one thread. What is dropped (no reader, a full disk) is counted, and reported in the output."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._writer: PrefixedLines | None = None
        self._num_dropped_bytes = 0
        self._reason = ""

    def write(self, text: bytes, writer: PrefixedLines) -> None:
        """Writes `text`, which `writer` has just given. Ends the open line of another writer before. Never raises."""
        if not text:
            return
        if self._writer is not writer:
            text = self._end_of_line() + text
            self._writer = writer
        num_written = self._outlet.write(text) if self._has_said_what_was_dropped() else 0
        if num_written < len(text):
            self._reason = self._outlet.reason
            self._num_dropped_bytes += len(text) - num_written
            writer.break_off()

    def close(self, other: Sink) -> None:
        """Ends the line, and reports what was dropped: in `other` if this outlet still takes nothing."""
        self._outlet.write(self._end_of_line())
        if not self._has_said_what_was_dropped():
            other._outlet.write(other._end_of_line() + self._note())

    def _end_of_line(self) -> bytes:
        if self._writer is None or not self._writer.is_open:
            return b""
        self._writer.break_off()
        return b"\n"

    def _has_said_what_was_dropped(self) -> bool:
        if self._num_dropped_bytes == 0:
            return True
        # What was dropped may have begun in the middle of a line.
        note = b"\n" + self._note()
        if self._outlet.write(note) < len(note):
            return False
        self._num_dropped_bytes = 0
        return True

    def _note(self) -> bytes:
        return f"[core-sdk] {self._num_dropped_bytes} bytes of output were dropped: {self._reason}\n".encode()
