"""The time for which the training of this process has waited for its data."""

from __future__ import annotations

from typing import ClassVar


class DataWait:
    """Loaders add to it, and each report takes what has come together. A process has one training."""

    LEAST_S: ClassVar[float] = 0.001
    """The shortest time that is told."""
    seconds: ClassVar[float] = 0.0

    @classmethod
    def take(cls) -> float | None:
        """Returns the time since the last call in whole milliseconds, or None; the rest is kept for the next call."""
        if cls.seconds < cls.LEAST_S:
            return None
        taken = round(cls.seconds, 3)
        cls.seconds -= taken
        return taken
