"""The processes of ranks, from their start to the end of what they leave behind.

Launchers, worker groups and agents start processes in ways of their own, and give them to `RankProcesses`. Each rank
is a child of this process and leads a session of its own. It is not reaped before `end`. Until then a dead
rank stays a zombie, so that its pid cannot mean another process, which would get the rank's signals.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection

from msgspec.structs import replace

from core_sdk._machine.processes._causes import RankSeen
from core_sdk._machine.processes._guardian import Guardian
from core_sdk._machine.processes._sessions import addressees, living, trainings
from core_sdk._machine.processes._signals import STOPS
from core_sdk._machine.processes.output import RankOutput

_POLL_S = 0.02
# If a stop is sent to both, this process may receive it so much later than a rank's wrapper.
_LATE_STOP_S = 5.0
# A process that cannot be killed, since it waits for a broken device, is not waited for any longer.
_UNKILLABLE_S = 10.0
# A rank that is stopped, or that waits for a device, does not show its stack.
_SHOWING_S = 2.0
# Processes that a rank leaves behind may keep its output open.
_LAST_OUTPUT_S = 0.5


class RankProcesses:
    """Watches the processes of ranks, each from `add` on. Thread-safe.

    If a rank's own process is a wrapper and dies of a stop, the rank has ended only when the training in it has: it was
    asked to stop too, and may be saving. If nothing was asked to stop, the rank ended with its wrapper.
    """

    def __init__(self, guardian: Guardian | None = None, output: RankOutput | None = None) -> None:
        """The guardian guards the ranks, whose output comes through `output`, if it does."""
        self.pids: dict[int, int] = {}
        self.has_news = threading.Event()
        """Is set when a rank's own process ends."""
        self._guardian = guardian
        self._output = output
        self._deaths: dict[int, RankSeen] = {}
        self._inner: defaultdict[int, set[int]] = defaultdict(set)
        self._drained: set[int] = set()
        self._is_signalled = False
        self._lock = threading.Lock()

    def add(self, rank: int, pid: int) -> None:
        """Takes over a child of this process. Nobody else reaps it before `end`."""
        self.pids[rank] = pid
        if self._guardian is not None:
            self._guardian.guard(pid)
        threading.Thread(target=self._watch, args=(rank, pid), name=f"core-sdk-rank-{rank}", daemon=True).start()

    def deaths(self) -> dict[int, RankSeen]:
        """Returns the ranks that have ended, with the code and time of each."""
        heard_since = time.monotonic() - _LATE_STOP_S
        with self._lock:
            deaths = dict(self._deaths)
            is_stop = {rank: self._is_signalled or death.ended_s > heard_since for rank, death in deaths.items()}
            inner = {rank: set(self._inner[rank]) for rank in deaths if is_stop[rank] and self._inner[rank]}
        alive = living({self.pids[rank] for rank in inner})
        for rank, pids in inner.items():
            if pids.intersection(process.pid for process in alive.get(self.pids[rank], ())):
                del deaths[rank]
        return deaths

    def running(self) -> list[int]:
        deaths = self.deaths()
        return [rank for rank in self.pids if rank not in deaths]

    def await_ends(self, ranks: Collection[int], timeout_s: float) -> bool:
        """Blocks until these ranks have ended. Returns False after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not (are_over := self.deaths().keys() >= set(ranks)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return are_over

    def await_output(self, rank: int) -> None:
        """Blocks until the output of an ended rank has been forwarded, or once for a moment."""
        if self._output is not None and rank not in self._drained:
            self._output.wait_for_end(rank, _LAST_OUTPUT_S)
            self._drained.add(rank)

    def seen(self, rank: int, death: RankSeen | None) -> RankSeen:
        """Returns what is seen of a rank, with its stderr; `death` is None while it runs."""
        seen = death or RankSeen(rank, self.pids[rank], ended_s=math.inf)
        if self._output is None:
            return seen
        return replace(seen, traceback_s=self._output.traceback_time(rank), stderr=self._output.tail(rank))

    def signal(self, number: int) -> None:
        """Sends a signal to the ranks' trainings, but not to their data-loader workers, which must live on."""
        with self._lock:
            self._is_signalled = True
            deaths = dict(self._deaths)
        # A wrapper may have got the signal already: Slurm sends it to every process of a step.
        asked = {
            rank: pid
            for rank, pid in self.pids.items()
            if rank not in deaths or deaths[rank].code in (-number, 128 + number)
        }
        alive = living(set(asked.values()))
        told: list[int] = []
        for rank, own_pid in asked.items():
            processes = alive.get(own_pid, [])
            with self._lock:
                self._inner[rank].update(pid for pid in trainings(processes) if pid != own_pid)
            told += addressees(processes, own_pid, number)
        # At once: the first to hear of it stops the others, which may then have restored the default handler.
        for pid in told:
            _signal(pid, number)

    def show_stacks(self) -> None:
        """Makes the running ranks write their stacks to their stderr. They die of it.

        A rank's Python does that at SIGABRT if it was started with `PYTHONFAULTHANDLER=1`, also inside C code.
        """
        running = self.running()
        for processes in living({self.pids[rank] for rank in running}).values():
            for pid in trainings(processes):
                _allow_no_core_dump(pid)
                _signal(pid, signal.SIGABRT)
        self.await_ends(running, _SHOWING_S)

    def kill(self) -> None:
        """Kills the ranks and all processes in their sessions, at once."""
        for pid in self.pids.values():
            # The groups first: these processes could start others meanwhile.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._signal_sessions(set(self.pids.values()), signal.SIGKILL)

    def end(self, grace_s: float) -> None:
        """Sends SIGTERM to running ranks and to what others left behind. Kills what is left after `grace_s`."""
        deadline = time.monotonic() + grace_s
        told: set[int] = set()
        self.signal(signal.SIGTERM)
        while (remaining := self._remaining()) and time.monotonic() < deadline:
            left = remaining - told - {self.pids[rank] for rank in self.running()}
            self._signal_sessions(left, signal.SIGTERM)
            told |= left
            time.sleep(_POLL_S)
        self.kill()
        self.await_ends(self.pids, _UNKILLABLE_S)

    def release(self) -> None:
        """Says, after `end`, that nothing is left of the ranks. From then on their pids may mean other processes."""
        for rank in self.deaths():
            self.await_output(rank)
            if self._guardian is not None:
                self._guardian.release(self.pids[rank])

    def _remaining(self) -> set[int]:
        """Returns the pids of ranks that run or have left processes behind."""
        running = {self.pids[rank] for rank in self.running()}
        return running | living(set(self.pids.values()) - running).keys()

    def _signal_sessions(self, sessions: set[int], number: int) -> None:
        for processes in living(sessions).values():
            for process in processes:
                _signal(process.pid, number)

    def _watch(self, rank: int, pid: int) -> None:
        code, time_s = _await_end(pid), time.monotonic()
        # It may be a wrapper that got the stop before us. Looked up first, so that nobody takes the rank for ended.
        is_stop = any(code in (-number, 128 + number) for number in STOPS)
        left = trainings(living({pid}).get(pid, [])) if is_stop else []
        with self._lock:
            self._inner[rank].update(left)
            self._deaths[rank] = RankSeen(rank, pid, code, time_s)
        self.has_news.set()


def _await_end(pid: int) -> int:
    """Blocks until a child ends, without reaping it. Returns its exit status, or -N for death by signal N."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # this process ignores SIGCHLD: the kernel has reaped the child, and nobody knows its end
        ended = None
    if ended is None:
        return -signal.SIGKILL
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _allow_no_core_dump(pid: int) -> None:
    """Keeps a process that is to abort from writing its memory to the disk first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # With 0 the kernel would still start a collector of dumps, where the system has one.
            resource.prlimit(pid, resource.RLIMIT_CORE, (1, 1))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
