"""`core_context.profiler`, which switches the sampling on and off."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import FlopsSet, PhaseEnded
from core_sdk._ground.signs import SignsOfLife
from core_sdk._home.journal import Journal
from core_sdk.core._profiler._collector import FigureCollector, FigureSource
from core_sdk.core._profiler._usual import UsualFigures
from core_sdk.errors import JournalError

logger = logging.getLogger("core_sdk.profiler")

_MIN_INTERVAL_S = 0.1
_PHASES = ("validation",)


class ProfilerContext(OfOneProcess):
    """Samples this process on each rank, and the node on its local rank 0.

    By default it does so every 15 s, from half a minute on, and records means over a minute. That costs less than a
    thousandth of a core, and `CORE_SDK_FIGURES_S` says how often, or `off`.
    """

    def __init__(
        self,
        journal: Journal,
        local_rank: int,
        open_sources: Callable[[], Iterable[FigureSource]] | None = None,
        num_ranks: int = 1,
        usual: UsualFigures | None = None,
    ) -> None:
        """The sampling thread calls `open_sources`; the default has all sources of this machine.

        `usual` is what samples without being asked, until `on()` or `off()` is called.
        """
        self._journal = journal
        self._local_rank = local_rank
        self._num_ranks = num_ranks
        self._open_sources = open_sources
        self._process = os.getpid()
        self._collector: FigureCollector | None = None
        self._usual = usual
        self._switching = threading.Lock()

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Samples more: every `sampling_interval` seconds, and records means over `samples_per_report` samples.

        The disks and the network of the node are sampled, too. Does nothing on local ranks other than 0. If it is on
        already, it only warns: call `off()` first. Raises
        `ValueError` for an interval below 0.1 or a number of samples that is not an int of at least 1.
        """
        if not _MIN_INTERVAL_S <= sampling_interval <= threading.TIMEOUT_MAX:
            raise ValueError(
                f"sampling_interval is {sampling_interval!r}; it must be at least {_MIN_INTERVAL_S} seconds"
            )
        if not isinstance(samples_per_report, int) or samples_per_report < 1:
            raise ValueError(f"samples_per_report is {samples_per_report!r}; it must be an int of at least 1")
        if os.getpid() != self._process:
            raise JournalError.forked(self._journal.path)
        with self._switching:
            if self._collector is not None:
                logger.warning("profiler.on() does nothing, since the profiler is on: call profiler.off() first")
            elif self._local_rank == 0:
                if self._usual is not None:
                    self._usual.close()
                self._collector = FigureCollector(
                    self._journal,
                    self._open_sources or self._machine_sources(),
                    interval_s=sampling_interval,
                    samples_per_report=samples_per_report,
                )

    def off(self) -> None:
        """Records the samples so far and stops, also what samples by default. Does nothing in a forked child."""
        if os.getpid() != self._process:
            return
        if self._usual is not None:
            self._usual.close()
        collector, self._collector = self._collector, None
        if collector is not None:
            collector.stop()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Says that the block is no training, but a validation: `with core_context.profiler.phase("validation"):`.

        `core-sdk trial time` then knows how long validations take. Without it, a validation is taken to begin with the
        last report of the training before it. Only the chief's blocks count. Raises `ValueError` for another name.
        """
        if name not in _PHASES:
            raise ValueError(f"there is no phase {name!r}; the name must be {' or '.join(map(repr, _PHASES))}")
        begun = time.monotonic()
        try:
            with SignsOfLife.busy():
                yield
        finally:
            lasted = round(time.monotonic() - begun, 3)
            self._journal.append(PhaseEnded(time=time.time(), phase=name, seconds=lasted))

    def set_flops(self, flops_per_step: float, peak_flops: float | None = None) -> None:
        """Says how many floating-point operations a step has, on all ranks together: that gives the MFU.

        `core-sdk trial describe` then has the share of the operations that the devices could have done in the time of
        the training. `peak_flops` are those that all devices together can do in a second; by default they are known of
        the usual GPUs, by their names. Only the chief's call counts. Raises `ValueError` for a number that is not
        above 0.
        """
        for name, value in {"flops_per_step": flops_per_step, "peak_flops": peak_flops}.items():
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}; it must be above 0")
        if peak_flops is None:
            from core_sdk.core._profiler._flops import peak_of_this_rank

            of_rank = peak_of_this_rank()
            peak_flops = None if of_rank is None else of_rank * self._num_ranks
        told = FlopsSet(time=time.time(), flops_per_step=float(flops_per_step), peak_flops=peak_flops)
        self._journal.append(told)

    @contextlib.contextmanager
    def count_flops(self) -> Iterator[None]:
        """Counts the floating-point operations of the block, which is one step: `set_flops()` with what torch counts.

        It takes those of this rank times the number of ranks, and needs torch. The block takes longer than usual:
        count one step, or a few first ones.
        """
        from core_sdk.core._profiler._flops import counted_flops

        def tell(num_flops: int) -> None:
            if num_flops:
                self.set_flops(num_flops * self._num_ranks)

        with counted_flops(tell):
            yield

    def _machine_sources(self) -> Callable[[], Iterable[FigureSource]]:
        # Loads psutil, which few scripts need.
        from core_sdk.core._profiler._machine import machine_sources

        return functools.partial(machine_sources, self._journal.path)
