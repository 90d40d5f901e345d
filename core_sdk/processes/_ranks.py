"""The processes of ranks, from their start to the end of what they leave behind.

Each rank is a child of this process and leads a session of its own. It is not reaped before `end`. Until then a dead
rank stays a zombie, so that its pid cannot mean another process, which would get the rank's signals.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core_sdk.processes._sessions import addressees, living, trainings
from core_sdk.processes._signals import STOPS

_POLL_S = 0.02
# If a stop is sent to both, this process may receive it so much later than a rank's wrapper.
_LATE_STOP_S = 5.0
# A process that cannot be killed, since it waits for a broken device, is not waited for any longer.
_UNKILLABLE_S = 10.0


def await_end(pid: int) -> int:
    """Blocks until a process ends, without reaping it. Returns its exit status, or -N for death by signal N."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is None:
        raise ChildProcessError(f"process {pid} ended unseen")
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


@dataclass(frozen=True)
class Death:
    rank: int
    code: int
    """Exit status, or -N for death by signal N."""
    time_s: float
    """`time.monotonic()`"""


class Ranks:
    """Watches the processes of ranks from construction on. `pids` has the pid of each rank. Thread-safe.

    If a rank's own process is a wrapper and dies of a stop, the rank has ended only when the training in it has: it was
    asked to stop too, and may be saving. If nothing was asked to stop, the rank ended with its wrapper.
    """

    def __init__(self, pids: Mapping[int, int], await_end: Callable[[int], int] = await_end) -> None:
        """`await_end` waits for processes that are not children of this one. They must stay zombies as well."""
        self.pids = dict(pids)
        self._await_end = await_end
        self._deaths: dict[int, Death] = {}
        self._inner: defaultdict[int, set[int]] = defaultdict(set)
        self._is_signalled = False
        self._lock = threading.Lock()
        for rank, pid in self.pids.items():
            threading.Thread(target=self._watch, args=(rank, pid), name=f"launch-rank-{rank}", daemon=True).start()

    def deaths(self) -> dict[int, Death]:
        heard_since = time.monotonic() - _LATE_STOP_S
        with self._lock:
            deaths = dict(self._deaths)
            is_stop = {rank: self._is_signalled or death.time_s > heard_since for rank, death in deaths.items()}
            inner = {rank: set(self._inner[rank]) for rank in deaths if is_stop[rank] and self._inner[rank]}
        alive = living({self.pids[rank] for rank in inner})
        for rank, pids in inner.items():
            if pids.intersection(process.pid for process in alive.get(self.pids[rank], ())):
                del deaths[rank]
        return deaths

    def running(self) -> list[int]:
        deaths = self.deaths()
        return [rank for rank in self.pids if rank not in deaths]

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
        for rank, own_pid in asked.items():
            processes = alive.get(own_pid, [])
            with self._lock:
                self._inner[rank].update(pid for pid in trainings(processes) if pid != own_pid)
            for pid in addressees(processes, own_pid, number):
                _signal(pid, number)

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
        deadline = time.monotonic() + _UNKILLABLE_S
        while self.running() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _remaining(self) -> set[int]:
        """Returns the pids of ranks that run or have left processes behind."""
        running = {self.pids[rank] for rank in self.running()}
        return running | living(set(self.pids.values()) - running).keys()

    def _signal_sessions(self, sessions: set[int], number: int) -> None:
        for processes in living(sessions).values():
            for process in processes:
                _signal(process.pid, number)

    def _watch(self, rank: int, pid: int) -> None:
        code, time_s = self._await_end(pid), time.monotonic()
        # It may be a wrapper that got the stop before us. Looked up first, so that nobody takes the rank for ended.
        is_stop = any(code in (-number, 128 + number) for number in STOPS)
        left = trainings(living({pid}).get(pid, [])) if is_stop else []
        with self._lock:
            self._inner[rank].update(left)
            self._deaths[rank] = Death(rank, code, time_s)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
