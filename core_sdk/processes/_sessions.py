"""The processes in a rank's session, and the choice of those to which a signal goes.

A rank's own process may be a wrapper, such as a shell script, that waits for the training and goes on after it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PYTHON = re.compile(r"(python|pypy)[\d.]*", re.IGNORECASE)


@dataclass(frozen=True)
class Process:
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
    import psutil  # a twentieth of a second, which the start should not pay

    found: defaultdict[int, list[Process]] = defaultdict(list)
    for pid in psutil.pids() if sessions else ():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if (session := os.getsid(pid)) in sessions:
                seen = psutil.Process(pid).as_dict(("ppid", "status", "exe"))
                if seen["status"] != psutil.STATUS_ZOMBIE:
                    found[session].append(Process(pid, seen["ppid"], _is_python(seen["exe"] or "")))
    return found


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(Path(program).name) is not None


def _ancestors(process: Process, by_pid: Mapping[int, Process]) -> list[int]:
    """Returns the ancestors of a process within the rank, the nearest first."""
    pids = [process.pid]
    while process.parent in by_pid and process.parent not in pids:
        pids.append(process.parent)
        process = by_pid[process.parent]
    return pids[1:]
