"""Shows on a terminal how far a refresh has come, and tells it to a callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

from core_sdk.tracking.rows import Reading

# The line on the terminal appears after the first time, and is then updated at most at this interval.
_PATIENCE_S = 0.5
_INTERVAL_S = 0.1


class ReadingProgress:
    """The progress of one refresh."""

    def __init__(self, num_trials: int, on_progress: Callable[[Reading], None] | None) -> None:
        self._reading = Reading(num_trials=num_trials)
        self._on_progress = on_progress
        self._next_s = time.monotonic() + _PATIENCE_S
        self._is_shown = False

    def read_trials(self, num_read: int) -> None:
        self._tell(replace(self._reading, num_read=num_read))

    def read_points(self, num_points: int) -> None:
        self._tell(replace(self._reading, num_points=self._reading.num_points + num_points))

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
