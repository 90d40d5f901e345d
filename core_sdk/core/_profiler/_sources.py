"""The seam between the profiler and what it can measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Source(Protocol):
    """Some figures of one part of the machine. Both calls may raise anything: then this source is given up."""

    name: str
    """For the warning that says so."""
    group: str
    """The metric group that the figures belong to; sources may share one."""

    def start(self) -> None:
        """Finds out whether there is anything to measure, and from where differences count."""

    def sample(self) -> Mapping[str, float]:
        """The figures now, or since the last sample."""
