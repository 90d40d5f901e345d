"""A guardian's process: `python _guardian_process.py DIRECTORY MARK [--detached]`. `_guardian` says what it is for.

It lives in a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it. It reads lines from the
supervisor: `+PID` for a rank that was started, `-PID` for one that is gone with all that it left behind, `.` for the
end. If the lines end without a `.`, the supervisor is dead. In the end it removes the supervisor's directory.

It imports little, since a guardian is started with each training: half as much as it would with `pathlib`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator

# Slurm sends a signal to every process of a step.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# A process that a supervisor was starting when it died shows its environment only after its exec.
_LEAST_S = 1.0
_MOST_S = 60.0
# The time for which a guardian spares one below it.
_PATIENCE_S = 5.0
_PAUSE_S = 0.05
# The process has ended, or is another user's.
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
# The place of the time of the start among the fields of /proc/PID/stat that follow the name.
_START = 19
# After Python itself and its options.
_MOST_ARGUMENTS = 4


def main(directory: str, mark: str, lines: Iterable[str]) -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    sessions = sessions_left(lines)
    if sessions is not None:
        end_marked(mark, sessions)
        if directory:
            import shutil  # slow to import, and most guardians end without it

            shutil.rmtree(directory, ignore_errors=True)


def sessions_left(lines: Iterable[str]) -> set[int] | None:
    """Returns the pids of the ranks that are left when the lines end; None after a `.`."""
    sessions: set[int] = set()
    for line in lines:
        if line == ".\n":
            return None
        # An incomplete line could name another process.
        if line.endswith("\n"):
            (sessions.add if line[0] == "+" else sessions.discard)(int(line[1:]))
    return sessions


def end_marked(mark: str, sessions: Collection[int] = (), *, least_s: float = _LEAST_S) -> list[int]:
    """Kills all processes that carry the mark or are in the sessions, and waits for the guardians among them. Blocks.

    It looks until it finds nothing, since a process may start another just before it is killed. After a minute it
    returns the pids of processes that cannot be killed, since they wait for a broken device.
    """
    start = time.monotonic()
    while True:
        found = {pid: is_guardian for pid, is_guardian in find_marked(mark, sessions) if pid != os.getpid()}
        passed_s = time.monotonic() - start
        for pid, is_guardian in found.items():
            if not is_guardian or passed_s > _PATIENCE_S:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if passed_s > _MOST_S or (not found and passed_s >= least_s):
            return list(found)
        time.sleep(_PAUSE_S)


def is_any_marked(mark: str) -> bool:
    """Returns whether a process of this machine carries the mark."""
    return next(find_marked(mark), None) is not None


def guardians_of(mark: str) -> list[int]:
    """Returns the pids of the guardians whose supervisor has this mark, which they do not carry themselves."""
    found = []
    for pid, _, _ in living():
        with contextlib.suppress(*_GONE):
            arguments = arguments_of(pid)
            if _is_guardian(arguments) and mark in arguments:
                found.append(pid)
    return found


def living() -> Iterator[tuple[int, int, int]]:
    """Yields the pid, the parent's pid and the session of each living process of this machine."""
    if sys.platform != "linux":
        yield from _living_elsewhere()
        return
    for name in os.listdir("/proc"):  # noqa: PTH208 - this process does without pathlib
        if name.isdecimal():
            with contextlib.suppress(*_GONE):
                state, parent, _, session = _read(int(name), "stat").rpartition(")")[2].split()[:4]
                if state not in ("Z", "X"):
                    yield int(name), int(parent), int(session)


def start_of(pid: int) -> int:
    """Returns the time at which a process was started, in a unit of the system's; 0 if it has ended."""
    if sys.platform != "linux":
        import psutil

        with contextlib.suppress(psutil.Error):
            return int(psutil.Process(pid).create_time())
        return 0
    with contextlib.suppress(*_GONE):
        return int(_read(pid, "stat").rpartition(")")[2].split()[_START])
    return 0


def _living_elsewhere() -> Iterator[tuple[int, int, int]]:
    import psutil  # a third-party library, which Linux does without

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid, process.ppid(), os.getsid(process.pid)


def find_marked(mark: str, sessions: Collection[int] = ()) -> Iterator[tuple[int, bool]]:
    """Yields the pids of processes that carry the mark or are in the sessions, and whether each is a guardian."""
    for pid, _, session in living():
        with contextlib.suppress(*_GONE):
            if session in sessions or mark in variables_of(pid):
                yield pid, _is_guardian(arguments_of(pid))


def variables_of(pid: int) -> list[str]:
    """Returns the environment of a process, as `NAME=value`. Raises `OSError`, as for another user's process."""
    if sys.platform != "linux":
        import psutil

        try:
            return [f"{name}={value}" for name, value in psutil.Process(pid).environ().items()]
        except psutil.Error as error:
            raise ProcessLookupError from error
    return _read(pid, "environ").split("\0")


def arguments_of(pid: int) -> list[str]:
    """Returns the command line of a process. Raises `OSError`."""
    if sys.platform != "linux":
        import psutil

        try:
            return psutil.Process(pid).cmdline()
        except psutil.Error as error:
            raise ProcessLookupError from error
    return _read(pid, "cmdline").split("\0")


def _read(pid: int, file: str) -> str:
    with open(f"/proc/{pid}/{file}", "rb") as opened:  # noqa: PTH123 - this process does without pathlib
        return os.fsdecode(opened.read())


def _is_guardian(arguments: list[str]) -> bool:
    return __file__ in arguments[:_MOST_ARGUMENTS]


if __name__ == "__main__":
    # A detached guardian is no child of its supervisor.
    if "--detached" in sys.argv[3:] and os.fork():
        os._exit(0)
    main(sys.argv[1], sys.argv[2], sys.stdin)
