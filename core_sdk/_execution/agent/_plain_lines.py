"""Makes the plain lines that a program leaves on a terminal from the output that it writes.

Colours and other escape sequences are removed. Text that is written over is forgotten: only the last state stays of a
progress bar, and of several ones that a library redraws by moving the cursor up.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    rb"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<command>[@-~])"  # a control sequence: colours, movements of the cursor
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # a string for the terminal: titles, links
    rb"|\x1b[ -/]*[0-Z\\^-~]"
    rb"|(?P<control>[\x00-\x08\x0a-\x1f\x7f])"
    rb"|(?P<text>[^\x00-\x08\x0a-\x1f\x7f]+)"
)
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_LONGEST_ESCAPE = 4096
# The bytes of a character of UTF-8 but its first.
_CONTINUATION = bytes(range(0x80, 0xC0))
# A longer line is returned in pieces.
_LONGEST_LINE = 1 << 20
# No terminal is higher; a library cannot redraw what has scrolled away.
_MOST_ROWS = 200


class PlainLines:
    """Makes plain lines from output in chunks. It holds lines back only as far up as the cursor has ever moved."""

    def __init__(self) -> None:
        self._unfinished = b""
        self._rows = [b""]
        self._row = 0
        self._num_held = 0
        self._is_at_start = False
        """The cursor is at the start of a line that has been written: the next text replaces it."""

    def feed(self, chunk: bytes) -> bytes:
        """Takes a chunk of output, and returns the lines that can no longer change."""
        content = self._unfinished + chunk
        cut = _UNFINISHED.search(content, max(0, len(content) - _LONGEST_ESCAPE))
        end = len(content) if cut is None else cut.start()
        self._unfinished = content[end:]
        lines: list[bytes] = []
        for token in _TOKEN.finditer(content, 0, end):
            if (text := token["text"]) is not None:
                lines.append(self._write(text))
            elif (control := token["control"]) is not None:
                self._control(control)
            elif token["command"] is not None:
                self._move(token["parameters"], token["command"])
            lines.append(self._settled(self._num_held))
        return b"".join(lines)

    def finish(self) -> bytes:
        """Returns the rest, at the end of the output."""
        self._row = len(self._rows) - 1
        rest = self._settled(0) + self._rows.pop()
        self._rows.append(b"")
        return rest

    def _write(self, text: bytes) -> bytes:
        self._rows[self._row] = text if self._is_at_start else self._rows[self._row] + text
        self._is_at_start = False
        if len(self._rows[self._row]) < _LONGEST_LINE:
            return b""
        self._row = len(self._rows) - 1
        early = self._settled(0) + self._rows[0]
        self._rows, self._row = [b""], 0
        return early

    def _control(self, control: bytes) -> None:
        if control == b"\n":
            self._row += 1
            if self._row == len(self._rows):
                self._rows.append(b"")
        if control in b"\r\n":
            self._is_at_start = True
        elif control == b"\b" and not self._is_at_start:
            self._rows[self._row] = self._rows[self._row].rstrip(_CONTINUATION)[:-1]

    def _move(self, parameters: bytes, command: bytes) -> None:
        count = int(parameters) if parameters.isdigit() else 0
        if command in b"AF":
            row = self._row - (count or 1)
            # The rows above were returned already: from now on that many more are held back.
            self._num_held = min(self._num_held + max(0, -row), _MOST_ROWS)
            self._row = max(0, row)
        elif command in b"BE":
            self._row = min(len(self._rows) - 1, self._row + (count or 1))
        elif command == b"K" and (count == 2 or self._is_at_start):
            self._rows[self._row] = b""
        elif command == b"J" and (count or self._is_at_start):
            del self._rows[self._row :]
            self._rows.append(b"")
            self._row = len(self._rows) - 1
        if command in b"EFG":
            self._is_at_start = True

    def _settled(self, num_held: int) -> bytes:
        """Removes and returns the lines above the cursor's and above the last `num_held` ones."""
        num_settled = min(self._row, len(self._rows) - 1 - num_held)
        if num_settled <= 0:
            return b""
        settled = b"".join(line + b"\n" for line in self._rows[:num_settled])
        del self._rows[:num_settled]
        self._row -= num_settled
        return settled
