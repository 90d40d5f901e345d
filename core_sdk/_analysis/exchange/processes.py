"""Imports runs with a process for each core: most of the time of an import goes into reading what a tool has recorded.

Each process finds the runs by itself, since what reads a run cannot be sent, and takes those that it is told by their
keys. This process decides which runs are taken, under which ids, and says what became of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import TracebackType

from core_sdk._analysis.exchange.kinds import find_runs
from core_sdk._analysis.exchange.run import ForeignRun
from core_sdk._analysis.exchange.taking import TakenRun, take_here, take_run, take_runs_by
from core_sdk._ground.environment import num_cpus
from core_sdk._home import Home
from core_sdk._home.moving.merging import merging
from core_sdk.errors import CoreSDKError

ALONE_S = 2.0
"""The time after which other processes are started, which takes half a second."""
_NUM_BEGUN_EACH = 3


def import_runs(
    home: Home, path: Path, runs: Iterable[ForeignRun], experiment: str | None = None
) -> Iterator[TakenRun]:
    """Does what `take_runs` does with the runs that `find_runs` has found at this path, on all cores.

    Raises `CoreSDKError` if one of its processes is killed. What was imported until then stays.
    """
    with merging(home) as aside, _Processes(home, aside, path) as processes:
        try:
            yield from take_runs_by(processes.take, home, runs, experiment, processes.number * _NUM_BEGUN_EACH)
        except BrokenProcessPool as error:
            raise CoreSDKError("a process of the import was killed; started again, it goes on with the rest") from error


class _Processes:
    """The processes, which are started when the import has taken a while. They end at once with this one."""

    def __init__(self, home: Home, aside: Path, path: Path) -> None:
        self.number = num_cpus()
        self._home, self._aside, self._path = home, aside, path
        self._alone_until = time.monotonic() + (ALONE_S if self.number > 1 else float("inf"))
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Processes:
        return self

    def take(self, run: ForeignRun, trial_id: int) -> Future[list[str]]:
        if time.monotonic() < self._alone_until:
            return take_here(self._home, self._aside, run, trial_id)
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            their_end, self._our_end = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(self.number, context, _begin, (self._path, their_end))
        return self._executor.submit(_take, self._home.root, self._aside, run.key, run.experiment, trial_id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._our_end.close()
            self._executor.shutdown(cancel_futures=True)


_runs: Iterator[ForeignRun]
"""The runs that this process has not passed yet. Set in each of the other processes when it starts."""


def _begin(path: Path, parent: Connection) -> None:
    global _runs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process ends the others
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    _runs = find_runs(path)


def _end_with(parent: Connection) -> None:
    parent.poll(None)  # nothing is ever sent: it returns at the end of the pipe
    os._exit(1)


def _take(root: Path, aside: Path, key: str, experiment: str, trial_id: int) -> list[str]:
    run = next((run for run in _runs if run.key == key), None)
    if run is None:
        raise CoreSDKError(f"the run {key} was removed while it was imported")
    run.experiment = experiment
    take_run(Home(root), aside, run, trial_id)
    return run.losses
