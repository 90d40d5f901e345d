"""Counts what a refresh has done so far, and decides when it commits."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from core_sdk.tracking.index._reading_progress import ReadingProgress

# Few enough for SQLite's cache: a transaction that outgrows it keeps readers waiting until it ends. Many enough that
# the fsyncs of a commit do not count, also where thousands of trials are small.
_POINTS_PER_COMMIT = 400_000


@dataclass
class RefreshResult:
    """The result of a refresh."""

    num_trials: int = 0
    """The number of trials that had changed."""
    num_points: int = 0
    num_bad_lines: int = 0
    left_out: dict[Path, str] = field(default_factory=dict)
    """The reasons for which folders of trials and files of experiments could not be read."""


class Batch:
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
