"""The processes in a rank's session, and the choice of those to which a signal goes.

A rank's own process may be a wrapper, such as a shell script, that waits for the training and goes on after it.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from core_sdk._machine.processes._guardian_process import living as all_living

_PYTHON = re.compile(r"(python|pypy)[\d.]*", re.IGNORECASE)


class Process(msgspec.Struct, frozen=True):
    pid: int
    parent: int
    is_python: bool


def trainings(processes: Sequence[Process]) -> list[int]:
    """Returns the Python processes that no other Python process of the rank has started, so no data-loader workers."""
    by_pid = {process.pid: process for process in processes}
    return [
        process.pid
        for process in processes
        if process.is_python and not any(by_pid[pid].is_python for pid in _ancestors(process, by_pid))
    ]


def addressees(processes: Sequence[Process], own_pid: int, number: int) -> list[int]:
    """Returns the processes of a rank to which a signal goes. `own_pid` is the rank's process, which may have ended.

    A signal goes to the trainings, since the wrappers wait for them. Ctrl-C goes to the wrappers too, as in a terminal.
    If no process is Python, a signal goes to the rank's own process, and Ctrl-C to all.
    """
    by_pid = {process.pid: process for process in processes}
    if not (inner := trainings(processes)):
        return list(by_pid) if number == signal.SIGINT else [pid for pid in by_pid if pid == own_pid]
    if number != signal.SIGINT:
        return inner
    return list(dict.fromkeys(each for pid in inner for each in (pid, *_ancestors(by_pid[pid], by_pid))))


def living(sessions: Collection[int]) -> dict[int, list[Process]]:
    """Returns the living processes of these sessions, by session."""
    found: defaultdict[int, list[Process]] = defaultdict(list)
    for pid, parent, session in all_living() if sessions else ():
        if session in sessions:
            found[session].append(Process(pid, parent, _PYTHON.fullmatch(_program(pid)) is not None))
    return found


def _program(pid: int) -> str:
    """Returns the name of the process's program; empty if it is another user's, or has ended."""
    if sys.platform != "linux":
        import psutil  # not on Linux: its import takes a twentieth of a second, by which an end would be told later

        with contextlib.suppress(psutil.Error):
            return Path(psutil.Process(pid).exe()).name
        return ""
    with contextlib.suppress(OSError):
        # The kernel marks a program whose file was replaced meanwhile, as by an upgrade.
        return Path(f"/proc/{pid}/exe").readlink().name.removesuffix(" (deleted)")
    return ""


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> list[int]:
    """Returns the ancestors of a process within the rank, the nearest first."""
    pids = [process.pid]
    while process.parent in by_pid and process.parent not in pids:
        pids.append(process.parent)
        process = by_pid[process.parent]
    return pids[1:]
