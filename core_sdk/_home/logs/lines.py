"""Reads parts of the output of an attempt, by line numbers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from core_sdk._home.folders import Home
from core_sdk._home.logs.levels import LEVELS, LevelReader, LogLevel

_BLOCK_BYTES = 1 << 18
_TAIL_BYTES = 256
_MAX_LINE_BYTES = 1 << 16
"""The part of a line that is shown."""
_SCAN_BYTES = 64 << 20
"""The amount of output that one search reads."""
_PREFIX = re.compile(rb"\[rank=(\d{1,9})\] ")
_MAX_PREFIX_BYTES = 1000
"""The part of a line in which its level is looked for."""
_LINES_BACK = 10_000
"""The number of lines at once in which the last ones are looked for."""
_LINES_BEFORE = 200
"""The number of lines before a part that are read, to know whether it begins within a traceback."""


def overwritten(content: bytes) -> bytes:
    """Returns what a terminal shows of a line such as a progress bar: the rank, and what follows the last return."""
    prefix = _PREFIX.match(content)
    begin = prefix.end() if prefix else 0
    last = content.rstrip(b"\r").rfind(b"\r")
    return content[:begin] + content[last + 1 :] if last >= begin else content


@dataclass(frozen=True)
class LogLine:
    number: int
    """Counted from 0, over the whole output of the attempt."""
    rank: int | None
    """The rank that wrote the line; None for a line of the launcher, and for all lines without a launcher."""
    level: LogLevel
    """INFO for a line that names no level; a traceback is ERROR."""
    text: str
    """The line without the rank, with control characters; of a progress bar what it shows at last."""
    is_cut: bool = False
    """A longer line is shown up to its 65,536th byte."""

    def shown(self, *, with_rank: bool) -> str:
        return f"[rank={self.rank}] {self.text}" if with_rank and self.rank is not None else self.text


@dataclass(frozen=True)
class LogPage:
    lines: tuple[LogLine, ...]
    num_lines: int
    """The number in the whole output as of now."""
    next_line: int | None
    """The place from which to read on; None at the end of what is there."""
    is_last_whole: bool = True
    """Whether the last line in the whole output ends with a newline, so that nothing is added to it."""


@dataclass(frozen=True)
class LogFilter:
    """The lines that are asked for."""

    ranks: Collection[int] = ()
    """The ranks whose lines are wanted; all lines if it is empty."""
    min_level: LogLevel = "DEBUG"
    search: str = ""
    """A text that the lines contain, in upper or lower case."""

    @property
    def is_everything(self) -> bool:
        return not self.ranks and self.min_level == "DEBUG" and not self.search

    def holds(self, line: LogLine) -> bool:
        return (
            (not self.ranks or line.rank in self.ranks or (line.rank is None and 0 in self.ranks))
            and LEVELS.index(line.level) >= LEVELS.index(self.min_level)
            and self.search.casefold() in line.text.casefold()
        )


class LogLines:
    """The lines of one attempt's output by number. Each byte is read once, and again only if its line is shown."""

    def __init__(self, home: Home, trial_id: int, attempt: int) -> None:
        self._home = home
        self._trial_id = trial_id
        self._attempt = attempt
        self._forget()

    def _forget(self) -> None:
        self._tail = b""
        """The end of what was counted."""
        self._starts = [0]
        """The number of the line in which each block begins."""
        self._last_block_bytes = 0
        self._last_block_lines = 0
        self._ends_with_newline = True

    @property
    def num_lines(self) -> int:
        return self._starts[-1] + self._last_block_lines + (not self._ends_with_newline)

    def read(self, first: int, limit: int, wanted: LogFilter) -> LogPage:
        """Returns at most `limit` of the wanted lines, from line `first` on; a negative `first` counts from the end.

        After 64 MiB a search stops, and returns what it has found and where to read on.
        """
        self._update()
        first = max(0, self.num_lines + first) if first < 0 else first
        found: list[LogLine] = []
        num_read = 0
        levels = LevelReader()
        for number, content in self._lines(max(0, first - _LINES_BEFORE)):
            line = _line(number, content, levels)
            if number < first:
                continue
            num_read += len(content)
            if wanted.is_everything or wanted.holds(line):
                found.append(line)
            if len(found) == limit or num_read > _SCAN_BYTES:
                next_line = number + 1 if number + 1 < self.num_lines else None
                return LogPage(tuple(found), self.num_lines, next_line, self._ends_with_newline)
        return LogPage(tuple(found), self.num_lines, None, self._ends_with_newline)

    def read_last(self, limit: int, wanted: LogFilter) -> list[LogLine]:
        """Returns the last `limit` of the wanted lines. What stands before them is counted, but not looked at."""
        self._update()
        found: list[LogLine] = []
        end = self.num_lines
        while end and len(found) < limit:
            first = max(0, end - max(limit, _LINES_BACK))
            found[:0] = self._between(first, end, wanted)
            end = first
        return found[len(found) - min(limit, len(found)) :]

    def _between(self, first: int, end: int, wanted: LogFilter) -> list[LogLine]:
        found: list[LogLine] = []
        levels = LevelReader()
        for number, content in self._lines(max(0, first - _LINES_BEFORE)):
            if number == end:
                break
            line = _line(number, content, levels)
            if number >= first and wanted.holds(line):
                found.append(line)
        return found

    def _update(self) -> None:
        """Counts the lines of what was added, or all of them if another output has taken the place of the known one."""
        end = (len(self._starts) - 1) * _BLOCK_BYTES + self._last_block_bytes
        before = self._home.trial(self._trial_id).read_log(self._attempt, end - len(self._tail), len(self._tail))
        if before != self._tail:
            self._forget()
        while content := self._block(len(self._starts) - 1, self._last_block_bytes):
            self._tail = (self._tail + content)[-_TAIL_BYTES:]
            self._last_block_bytes += len(content)
            self._last_block_lines += content.count(b"\n")
            self._ends_with_newline = content.endswith(b"\n")
            if self._last_block_bytes == _BLOCK_BYTES:
                self._starts.append(self._starts[-1] + self._last_block_lines)
                self._last_block_bytes = self._last_block_lines = 0

    def _block(self, index: int, offset: int = 0) -> bytes:
        """Reads the rest of a block; shorter at the end of the output."""
        start = index * _BLOCK_BYTES + offset
        return self._home.trial(self._trial_id).read_log(self._attempt, start, _BLOCK_BYTES - offset)

    def _lines(self, first: int) -> Iterator[tuple[int, bytes]]:
        """Yields the lines from `first` on, without newlines. Long lines are cut a little beyond what is shown."""
        # The line in which a block begins may have begun in an earlier one.
        index = max(0, bisect_right(self._starts, first - 1) - 1)
        number, begun = self._starts[index], b""
        is_middle = index > 0
        while content := self._block(index):
            *ended, rest = content.split(b"\n")
            for line in ended:
                if number >= first and not is_middle:
                    yield number, overwritten(begun + line)
                begun, is_middle = b"", False
                number += 1
            begun = overwritten(begun + rest)[: 2 * _MAX_LINE_BYTES]
            index += 1
        if begun and not is_middle and number >= first:
            yield number, begun


def _line(number: int, content: bytes, levels: LevelReader) -> LogLine:
    level = levels.level(content[:_MAX_PREFIX_BYTES].decode(errors="replace"))
    prefix = _PREFIX.match(content)
    if prefix is not None:
        content = content[prefix.end() :]
    return LogLine(
        number,
        int(prefix[1]) if prefix else None,
        level,
        content[:_MAX_LINE_BYTES].decode(errors="replace").removesuffix("\r"),
        len(content) > _MAX_LINE_BYTES,
    )
