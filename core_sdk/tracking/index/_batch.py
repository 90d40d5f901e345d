"""What a refresh has done so far, and when it commits."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Few enough for SQLite's cache: a transaction that outgrows it keeps readers waiting until it ends. Many enough that
# the fsyncs of a commit do not count, also where thousands of trials are small.
_POINTS_PER_COMMIT = 100_000

# Fewer are indexed within a second.
_MANY_POINTS = 200_000


@dataclass
class RefreshResult:
    """What a refresh did."""

    num_trials: int = 0
    """Trials that had changed."""
    num_points: int = 0
    num_bad_lines: int = 0
    left_out: list[Path] = field(default_factory=list)
    """Trials' folders and experiments' files that could not be read."""


class Batch:
    """A transaction over many small journals, or over a part of a large one."""

    def __init__(self, connection: sqlite3.Connection, commit: Callable[[], None]) -> None:
        self.connection = connection
        self._commit = commit
        self.result = RefreshResult()
        self._num_committed = 0
        self._is_shown = False

    @property
    def is_full(self) -> bool:
        return self.result.num_points - self._num_committed >= _POINTS_PER_COMMIT

    def add_points(self, num_points: int) -> None:
        """Says on a terminal how far the indexing is, once that takes long."""
        self.result.num_points += num_points
        if self.result.num_points >= _MANY_POINTS and sys.stderr.isatty():
            self._is_shown = True
            print(f"\rindexed {self.result.num_points:,} points", end="", file=sys.stderr, flush=True)

    def finish(self) -> RefreshResult:
        """Commits, and clears the line on the terminal."""
        self.commit()
        if self._is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        return self.result

    def commit(self) -> None:
        self._commit()
        self._num_committed = self.result.num_points
