"""Reads the output that was kept of a trial's attempts."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.folders import Home
from core_sdk._home.logs.ranks import RankFilter, RankSearch
from core_sdk._home.rows import AttemptRow

_POLL_INTERVAL_S = 0.1
_CHUNK_BYTES = 1 << 20
_TAIL_BYTES = 256


class LogChunk(NamedTuple):
    attempt: int
    content: bytes


class LogReader:
    """Reads the output of the attempts one after the other, as raw bytes. Each call goes on where the last one stopped.

    It reads all attempts, or only `attempt`; all output, or only the output of these `ranks`.
    """

    def __init__(self, home: Home, trial_id: int, *, attempt: int | None = None, ranks: Collection[int] = ()) -> None:
        self._home = home
        self._trial_id = trial_id
        self._only = attempt
        self._ranks = ranks
        self._chosen: RankFilter | None = None
        self._attempt = 0
        self._offset = 0
        self._tail = b""
        """The text before the offset."""

    def attempts(self) -> list[AttemptRow]:
        """Returns the attempts that this reads and whose output was kept."""
        return [
            row
            for row in attempt_rows(self._home.trial(self._trial_id))
            if row.log_size_bytes is not None and self._only in (None, row.attempt)
        ]

    def is_running(self) -> bool:
        """Returns whether more output may come."""
        rows = attempt_rows(self._home.trial(self._trial_id))
        return any(row.is_running for row in rows if self._only in (None, row.attempt))

    def read(self) -> Iterator[LogChunk]:
        """Yields the output that is there now and was not read yet."""
        for row in self.attempts():
            if row.attempt < self._attempt:
                continue
            if row.attempt > self._attempt or self._is_replaced():
                yield from self._begin(row.attempt)
            for content in self._contents(row.attempt, self._offset):
                self._offset += len(content)
                self._tail = (self._tail + content)[-_TAIL_BYTES:]
                yield LogChunk(row.attempt, content if self._chosen is None else self._chosen.feed(content))

    def follow(self) -> Iterator[LogChunk]:
        """Yields output as it is written, and blocks until no attempt runs any more."""
        is_running = True
        while is_running:
            # This is asked before reading, so that the output before the end is read, too.
            is_running = self.is_running()
            yield from self.read()
            if is_running:
                time.sleep(_POLL_INTERVAL_S)

    def finish(self) -> Iterator[LogChunk]:
        """Yields the part of an unfinished last line that was held back because its rank was unknown."""
        if self._chosen is not None:
            yield LogChunk(self._attempt, self._chosen.finish())

    def ranks_of(self, attempt: int) -> set[int]:
        """Returns the ranks that wrote the output of an attempt; empty if no launcher started several."""
        search = RankSearch()
        for content in self._contents(attempt, 0):
            search.feed(content)
        return search.found

    def _begin(self, attempt: int) -> Iterator[LogChunk]:
        yield from self.finish()
        self._attempt, self._offset, self._tail = attempt, 0, b""
        if self._ranks:
            self._chosen = RankFilter(self._ranks, is_launched=bool(self.ranks_of(attempt)))

    def _is_replaced(self) -> bool:
        """Returns whether another output has taken the place of the one that was read."""
        begin = self._offset - len(self._tail)
        return self._home.trial(self._trial_id).read_log(self._attempt, begin, len(self._tail)) != self._tail

    def _contents(self, attempt: int, offset: int) -> Iterator[bytes]:
        while content := self._home.trial(self._trial_id).read_log(attempt, offset, _CHUNK_BYTES):
            yield content
            offset += len(content)


class LineCutter:
    """Cuts output into lines without their newlines. A line ends with its attempt at the latest."""

    def __init__(self) -> None:
        self._attempt = 0
        self._begun = b""

    def cut(self, chunks: Iterable[LogChunk], *, is_last: bool = False) -> Iterator[bytes]:
        """Yields the lines. A line that has not ended is kept for the next call, unless `is_last`."""
        for chunk in chunks:
            if chunk.attempt != self._attempt:
                yield from self._end()
                self._attempt = chunk.attempt
            *lines, self._begun = (self._begun + chunk.content).split(b"\n")
            yield from lines
        if is_last:
            yield from self._end()

    def _end(self) -> Iterator[bytes]:
        if self._begun:
            yield self._begun
        self._begun = b""
