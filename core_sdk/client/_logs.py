"""The output of a trial: the log files of its attempts, read as one text."""

from __future__ import annotations

import enum
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice

from core_sdk.tracking import TrialFolder
from core_sdk.tracking.ranks import RankFilter, check_rank_ids, holds_ranks

_POLL_INTERVAL_S = 0.2
_LEVEL = re.compile(r"(?:\[rank=\d+\] )?(DEBUG|INFO|WARNING|ERROR|CRITICAL): ")


class LogLevel(enum.Enum):
    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


_LEVELS = list(LogLevel)


def log_lines(
    folder: TrialFolder,
    *,
    follow: bool,
    head: int | None,
    tail: int | None,
    wanted: Callable[[str], bool],
    rank_ids: Collection[int] | None,
) -> Iterator[str]:
    """The contract is `Trial.iter_logs`'s."""
    if head is not None and tail is not None:
        raise ValueError("head and tail exclude each other: give one of them")
    for name, count in (("head", head), ("tail", tail)):
        if count is not None and count < 0:
            raise ValueError(f"{name} is {count}; it must be at least 0")
    if rank_ids is not None:
        check_rank_ids(rank_ids)
    reader = _LogReader(folder, rank_ids)
    lines: Iterator[str] = filter(wanted, reader.lines(is_complete=not follow))
    if tail is not None:
        lines = iter(deque(lines, maxlen=tail))
    if follow:
        lines = chain(lines, filter(wanted, reader.follow()))
    return islice(lines, head)


def line_filter(search_text: str | None, min_level: LogLevel | None) -> Callable[[str], bool]:
    """The contract is `Trial.iter_logs`'s."""
    text = (search_text or "").casefold()
    wanted_levels = None if min_level is None else frozenset(_LEVELS[_LEVELS.index(LogLevel(min_level)) :])

    def is_wanted(line: str) -> bool:
        return text in line.casefold() and (wanted_levels is None or _level(line) in wanted_levels)

    return is_wanted


def _level(line: str) -> LogLevel:
    found = _LEVEL.match(line)
    return LogLevel[found[1]] if found else LogLevel.INFO


class _LogReader:
    """Goes on where it stopped, from one attempt's file to the next."""

    def __init__(self, folder: TrialFolder, rank_ids: Collection[int] | None) -> None:
        self._folder = folder
        self._rank_ids = rank_ids
        self._ranks: RankFilter | None = None
        self._attempt = 0
        self._offset = 0

    def lines(self, *, is_complete: bool) -> Iterator[str]:
        """What is there now, beyond what was read; a last line without its newline only if the text `is_complete`."""
        attempts = [attempt for attempt in self._folder.attempts() if attempt >= self._attempt]
        for attempt in attempts:
            if attempt != self._attempt:
                self._attempt, self._offset = attempt, 0
            yield from self._lines_of_file(is_complete=is_complete or attempt != attempts[-1])

    def follow(self) -> Iterator[str]:
        while True:
            # Asked before reading: what the trial wrote before its end is then read after it.
            is_running = self._folder.running_attempt() is not None
            yield from self.lines(is_complete=not is_running)
            if not is_running:
                return
            time.sleep(_POLL_INTERVAL_S)

    def _lines_of_file(self, *, is_complete: bool) -> Iterator[str]:
        try:
            file = self._folder.log_path(self._attempt).open("rb")
        except FileNotFoundError:
            return
        with file:
            if self._offset == 0 and self._rank_ids is not None:
                self._ranks = RankFilter(self._rank_ids, is_launched=holds_ranks(file))
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n") and not is_complete:
                    return
                self._offset += len(line)
                yield from self._chosen(line.removesuffix(b"\n") + b"\n")

    def _chosen(self, line: bytes) -> Iterator[str]:
        if self._ranks is not None:
            line = self._ranks.feed(line)
        if line:
            yield line.removesuffix(b"\n").decode(errors="replace") + "\n"
