"""The time for which the training of this process has waited for its data."""

from __future__ import annotations

from typing import ClassVar

LEAST_S = 0.001
"""The shortest time that is told."""


class DataWait:
    """Loaders add to it, and each report takes what has come together. A process has one training."""

    of_process: ClassVar[DataWait]

    # No attribute of the class, whose every change makes Python look up all attributes of the class again.
    __slots__ = ("_taken", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._taken = 0.0

    @property
    def total_s(self) -> float:
        """The time so far, in seconds, also of what reports have taken."""
        return self._taken + self.seconds

    def take(self) -> float | None:
        """Returns the time since the last call in whole milliseconds, or None; the rest is kept for the next call."""
        if self.seconds < LEAST_S:
            return None
        taken = round(self.seconds, 3)
        self._taken += taken
        self.seconds -= taken
        return taken


DataWait.of_process = DataWait()
