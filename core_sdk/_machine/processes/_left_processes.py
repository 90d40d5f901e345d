"""The processes that an attempt has left behind: its agent ends them, and they keep its slots while they live."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from core_sdk._machine.processes._guardian_process import (
    arguments_of,
    end_marked,
    find_marked,
    living,
    start_of,
    variables_of,
)

_PAUSE_S = 0.02
_MOST_CHARACTERS = 80


class Traces(msgspec.Struct, frozen=True):
    """What tells the processes of one attempt from all others. It contains nothing that others may not read."""

    variable: str
    """The name of the variable with which the processes are marked; their user and root alone can see it."""
    session: int
    """The session of the attempt's command, which everybody can see."""
    start: int
    """The time at which the command was started, in the kernel's unit. Its pid may come to mean another process."""
    place: str
    """The boot, and the container, in which the numbers have their meaning."""

    @classmethod
    def of(cls, mark: str, pid: int) -> Traces:
        """Returns the traces of processes with this mark. The command, `pid`, leads a session."""
        return cls(mark.partition("=")[0], pid, start_of(pid), _place())

    def living(self) -> list[int]:
        """Returns the pids of the processes of the attempt that live."""
        session = self.session if self.place == _place() and start_of(self.session) in (0, self.start) else -1
        return [pid for pid, _, of_session in living() if of_session == session or self._is_marked(pid)]

    def _is_marked(self, pid: int) -> bool:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            return any(variable.startswith(f"{self.variable}=") for variable in variables_of(pid))
        return False


def describe_marked(mark: str) -> list[str]:
    """Returns the command line and the pid of each process that carries the mark, except guardians."""
    return [_describe(pid) for pid, is_guardian in find_marked(mark) if not is_guardian]


def end_left(mark: str, grace_s: float) -> list[int]:
    """Sends SIGTERM to all processes that carry the mark, and SIGKILL to those that live after `grace_s`. Blocks.

    Returns the pids of those that cannot be killed. Guardians end by themselves.
    """
    deadline = time.monotonic() + grace_s
    told: set[int] = set()
    while (found := list(find_marked(mark))) and time.monotonic() < deadline:
        for pid, is_guardian in found:
            if not is_guardian and pid not in told:
                told.add(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)
        time.sleep(_PAUSE_S)
    return end_marked(mark, least_s=0) if found else []


def _describe(pid: int) -> str:
    words = ""
    with contextlib.suppress(OSError):  # it has ended
        words = " ".join("".join(each if each.isprintable() else " " for each in " ".join(arguments_of(pid))).split())
    return f"{words[:_MOST_CHARACTERS]} (pid {pid})".lstrip()


def _place() -> str:
    if sys.platform != "linux":
        return sys.platform
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    return ""
