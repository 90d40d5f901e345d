"""Ends a launch whose launcher was killed: a process of its own, started by this file's path.

It imports the standard library only and lives in a session of its own, where neither Ctrl-C nor the terminal's end
reaches it. From the launcher it reads lines: `+PID` for a rank that started, `-PID` for one that is gone with all that
it left behind, `.` as the farewell. The end of the lines without a farewell means that the launcher is dead: then all
processes of the launch are killed, those of its ranks' sessions and those that carry its directory in their
environment, and the directory is removed. Nothing is said: there is nobody left to say it to.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# What the launcher was starting when it died shows its environment only after its exec.
_LEAST_S = 1.0
_MOST_S = 60.0
_PAUSE_S = 0.05
ISOLATION = ("-I", "-S") if sys.platform == "linux" else ("-I",)
"""How to start it: elsewhere it needs a third-party library to see other processes."""

_SESSION_FIELD = 3  # of /proc/PID/stat, counted behind the program's name


@dataclass(frozen=True)
class Process:
    pid: int
    session: int
    is_marked: bool
    """Whether the launch's directory is in its environment."""


def main(directory: str, mark: str, lines: Iterable[str]) -> None:
    # Slurm sends what it sends to every process of a step.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    sessions = sessions_left(lines)
    if sessions is not None:
        _kill_all(mark, sessions)
        shutil.rmtree(directory, ignore_errors=True)


def sessions_left(lines: Iterable[str]) -> set[int] | None:
    """The ranks that are left when the lines end; None after a farewell."""
    sessions: set[int] = set()
    for line in lines:
        if line == ".\n":
            return None
        # A line that is cut short would name another process.
        if line.endswith("\n"):
            (sessions.add if line[0] == "+" else sessions.discard)(int(line[1:]))
    return sessions


def _kill_all(mark: str, sessions: Collection[int]) -> None:
    start = time.monotonic()
    while True:
        found = [process for process in _processes(mark) if process.is_marked or process.session in sessions]
        for process in found:
            _kill(process.pid)
        passed_s = time.monotonic() - start
        if passed_s > _MOST_S or (not found and passed_s > _LEAST_S):
            return
        time.sleep(_PAUSE_S)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _processes(mark: str) -> Iterator[Process]:
    """All that live, but this one."""
    found = _processes_of_linux(mark) if sys.platform == "linux" else _processes_elsewhere(mark)
    return (process for process in found if process.pid != os.getpid())


def _processes_of_linux(mark: str) -> Iterator[Process]:
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = (place / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] not in (b"Z", b"X"):
                yield Process(int(place.name), int(fields[_SESSION_FIELD]), _is_marked(place, mark))


def _is_marked(place: Path, mark: str) -> bool:
    try:
        return os.fsencode(mark) in (place / "environ").read_bytes().split(b"\0")
    except PermissionError:
        return False


def _processes_elsewhere(mark: str) -> Iterator[Process]:
    import psutil  # a third-party library, and Linux does without

    name, _, value = mark.partition("=")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            yield Process(process.pid, os.getsid(process.pid), process.environ().get(name) == value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.stdin)
