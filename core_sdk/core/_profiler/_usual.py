"""What every training records of its machine without being asked."""

from __future__ import annotations

from collections.abc import Iterable

from core_sdk._home.journal import Journal
from core_sdk.core._profiler._collector import FigureCollector, FigureSource

_SAMPLES_PER_REPORT = 4


class UsualFigures:
    """Samples this process on each rank, and on local rank 0 the node; the first time after two intervals."""

    def __init__(self, journal: Journal, local_rank: int, interval_s: float) -> None:
        self._journal = journal
        self._local_rank = local_rank
        self._interval_s = interval_s
        self._collector: FigureCollector | None = None

    def start(self) -> None:
        self._collector = FigureCollector(
            self._journal,
            self.sources,
            interval_s=self._interval_s,
            samples_per_report=_SAMPLES_PER_REPORT,
            delay_s=self._interval_s,
        )

    def close(self) -> None:
        """Records the samples so far and stops. Does nothing the second time."""
        collector, self._collector = self._collector, None
        if collector is not None:
            collector.stop()

    def sources(self) -> Iterable[FigureSource]:
        # Loads psutil, which a short training never needs.
        from core_sdk.core._profiler._machine import process_sources, usual_sources

        return [*process_sources(), *(usual_sources() if self._local_rank == 0 else ())]
