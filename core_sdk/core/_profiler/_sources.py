"""The interface between the profiler and what it measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Source(Protocol):
    """Figures of one part of the machine. If a call raises anything, the source is not asked again."""

    name: str
    """Used in the warning about a failure."""
    group: str
    """The metric group that the figures belong to; sources may share one."""

    def start(self) -> None:
        """Finds out whether there is anything to measure, and from when differences count."""

    def sample(self) -> Mapping[str, float]:
        """The figures now, or since the last sample."""
