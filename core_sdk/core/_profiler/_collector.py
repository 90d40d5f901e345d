"""The thread that samples, averages and records."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from core_sdk._ground.records import Profile, number_to_json
from core_sdk._home.journal import Journal
from core_sdk.errors import JournalError

logger = logging.getLogger("core_sdk.profiler")

_STOP_TIMEOUT_S = 5.0


class FigureSource(Protocol):
    """Figures of one part of the machine. If a call raises anything, the source is not asked again."""

    name: str
    """Used in the warning about a failure."""
    group: str
    """The metric group that the figures belong to; sources may share one."""

    def start(self) -> None:
        """Finds out whether there is anything to measure, and from when differences count."""

    def sample(self) -> Mapping[str, float]:
        """Returns the figures now, or since the last sample."""


class FigureCollector:
    """Samples every `interval_s`, from construction to `stop()`; records the means of `samples_per_report` samples."""

    def __init__(
        self,
        journal: Journal,
        open_sources: Callable[[], Iterable[FigureSource]],
        *,
        interval_s: float,
        samples_per_report: int,
        delay_s: float = 0.0,
    ) -> None:
        """With `delay_s` the sources are opened, and their modules are loaded, only so much later."""
        self._delay_s = delay_s
        self._journal = journal
        self._open_sources = open_sources
        self._interval_s = interval_s
        self._samples_per_report = samples_per_report
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._collect, name="core-sdk-profiler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Records the mean of the samples so far, and returns when that is done."""
        self._stopping.set()
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            logger.warning("the profiler is not waited for: a source has not answered for %.0f s", _STOP_TIMEOUT_S)

    def _collect(self) -> None:
        if self._delay_s and self._stopping.wait(self._delay_s):
            return
        sources = [source for source in self._open_sources() if _starts(source)]
        means = Means()
        try:
            while sources and not self._stopping.wait(self._interval_s):
                sources = [source for source in sources if _adds(source, means)]
                means.num_samples += 1
                if means.num_samples == self._samples_per_report:
                    self._record(means)
                    means = Means()
            self._record(means)
        except JournalError as error:
            logger.warning("the profiler stops: %s", error)

    def _record(self, means: Means) -> None:
        for group, metrics in means.by_group().items():
            spelled = {name: number_to_json(mean) for name, mean in metrics.items()}
            self._journal.append(Profile(time=time.time(), group=group, metrics=spelled))


class Means:
    """Means of figures, each over the samples that have it."""

    def __init__(self) -> None:
        self.num_samples = 0
        self._totals: dict[tuple[str, str], tuple[float, int]] = defaultdict(lambda: (0.0, 0))

    def add(self, group: str, figures: Mapping[str, float]) -> None:
        for name, figure in figures.items():
            total, count = self._totals[group, name]
            self._totals[group, name] = (total + figure, count + 1)

    def by_group(self) -> dict[str, dict[str, float]]:
        means: dict[str, dict[str, float]] = defaultdict(dict)
        for (group, name), (total, count) in self._totals.items():
            means[group][name] = total / count
        return means


def _starts(source: FigureSource) -> bool:
    return _works(source, source.start)


def _adds(source: FigureSource, means: Means) -> bool:
    return _works(source, lambda: means.add(source.group, source.sample()))


def _works(source: FigureSource, action: Callable[[], None]) -> bool:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - drivers and kernels fail in their own ways, and it costs one source
        logger.warning("the profiler goes on without %s: %s: %s", source.name, type(error).__name__, error)
        return False
    return True
