"""The processes of this node's ranks, from their start to the end of what they leave behind.

Each rank is a child of ours and leads a process group of its own. None is reaped before `end`: a dead rank stays a
zombie until then, so that neither its pid nor its group can mean another process, whenever a signal is sent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_POLL_S = 0.02
# What cannot be killed (a process that waits for a broken device) must not keep the launcher.
_UNKILLABLE_S = 10.0


@dataclass(frozen=True)
class Death:
    rank: int
    code: int
    """Exit status, or -N for death by signal N."""
    time_s: float
    """`time.monotonic()`"""


class Ranks:
    """Watches from construction on. `pids` by rank; thread-safe."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self.pids = dict(pids)
        self._deaths: dict[int, Death] = {}
        self._changed = threading.Condition()
        for rank, pid in self.pids.items():
            threading.Thread(target=self._watch, args=(rank, pid), name=f"launch-rank-{rank}", daemon=True).start()

    def deaths(self) -> dict[int, Death]:
        with self._changed:
            return dict(self._deaths)

    def running(self) -> list[int]:
        with self._changed:
            return [rank for rank in self.pids if rank not in self._deaths]

    def wait(self, timeout_s: float) -> bool:
        """Whether all have ended."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._deaths) == len(self.pids), timeout_s)

    def signal(self, number: int) -> None:
        """To the ranks themselves, not to what they started: their data-loader workers must live on."""
        for rank in self.running():
            # It may have died since, and then still is ours to signal, without effect.
            with contextlib.suppress(PermissionError):
                os.kill(self.pids[rank], number)

    def kill(self) -> None:
        """At once, with all in their groups."""
        for pid in self.pids.values():
            _signal_group(pid, signal.SIGKILL)

    def end(self, grace_s: float) -> None:
        """SIGTERM to those that still run and to what the others left; what is there after `grace_s` is killed."""
        deadline = time.monotonic() + grace_s
        told: set[int] = set()
        self.signal(signal.SIGTERM)
        while (remaining := self._remaining()) and time.monotonic() < deadline:
            for pid in remaining - told - {self.pids[rank] for rank in self.running()}:
                _signal_group(pid, signal.SIGTERM)
                told.add(pid)
            time.sleep(_POLL_S)
        self.kill()
        self.wait(_UNKILLABLE_S)

    def _remaining(self) -> set[int]:
        """The pids of ranks that run, or left somebody behind."""
        running = {self.pids[rank] for rank in self.running()}
        return running | _populated(set(self.pids.values()) - running)

    def _watch(self, rank: int, pid: int) -> None:
        code = _await_end(pid)
        with self._changed:
            self._deaths[rank] = Death(rank, code, time.monotonic())
            self._changed.notify_all()


def _await_end(pid: int) -> int:
    """Without reaping it."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if ended is None:
        raise ChildProcessError(f"process {pid} ended unseen")
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _populated(groups: Collection[int]) -> set[int]:
    """Those of the process groups in which somebody lives."""
    if not groups:
        return set()
    import psutil  # a twentieth of a second, which the start need not pay

    populated = set()
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if (group := os.getpgid(pid)) in groups and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                populated.add(group)
    return populated
