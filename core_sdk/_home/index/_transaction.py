"""Counts what a refresh has done so far, shows it on a terminal, and decides when it commits."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from core_sdk._home.rows import Reading

# Few enough for SQLite's cache: a transaction that outgrows it keeps readers waiting until it ends. Many enough that
# the fsyncs of a commit do not count, also where thousands of trials are small.
_POINTS_PER_COMMIT = 400_000
# The line on the terminal appears after the first time, and is then updated at most at this interval.
_PATIENCE_S = 0.5
_INTERVAL_S = 0.1


class RefreshResult(msgspec.Struct):
    """The result of a refresh."""

    num_trials: int = 0
    """The number of trials that had changed."""
    unread: list[int] = []
    """The trials that had changed, and that there was no time to read."""
    num_points: int = 0
    num_bad_lines: int = 0
    left_out: dict[Path, str] = {}
    """The reasons for which folders of trials and files of experiments could not be read."""


class ReadingProgress:
    """The progress of one refresh."""

    def __init__(self, num_trials: int, on_progress: Callable[[Reading], None] | None) -> None:
        self._reading = Reading(num_trials=num_trials)
        self._on_progress = on_progress
        self._next_s = time.monotonic() + _PATIENCE_S
        self._is_shown = False

    def read_trials(self, num_read: int) -> None:
        self._tell(msgspec.structs.replace(self._reading, num_read=num_read))

    def read_points(self, num_points: int) -> None:
        self._tell(msgspec.structs.replace(self._reading, num_points=self._reading.num_points + num_points))

    def end(self) -> None:
        """Clears the line on the terminal."""
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _tell(self, reading: Reading) -> None:
        self._reading = reading
        if self._on_progress is not None:
            self._on_progress(reading)
        if time.monotonic() >= self._next_s and sys.stderr.isatty():
            self._is_shown = True
            self._next_s = time.monotonic() + _INTERVAL_S
            trials = f"{reading.num_read:,} of {reading.num_trials:,} trials, {reading.num_points:,} points"
            print(f"\rreading the records: {trials}", end="", file=sys.stderr, flush=True)


class IndexTransaction:
    """A transaction over many small journals, or over a part of a large one."""

    def __init__(self, connection: sqlite3.Connection, commit: Callable[[], None], progress: ReadingProgress) -> None:
        self.connection = connection
        self.progress = progress
        self._commit = commit
        self.result = RefreshResult()
        self._num_committed = 0

    @property
    def is_full(self) -> bool:
        return self.result.num_points - self._num_committed >= _POINTS_PER_COMMIT

    def add_points(self, num_points: int) -> None:
        self.result.num_points += num_points
        self.progress.read_points(num_points)

    def finish(self) -> RefreshResult:
        self.commit()
        self.progress.end()
        return self.result

    def commit(self) -> None:
        self._commit()
        self._num_committed = self.result.num_points
