"""The guardian ends the processes of a launch whose launcher was killed.

It is a process of its own, which `Guardian` starts by the path of this file. It imports the standard library only, and
lives in a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it. It reads lines from the
launcher: `+PID` for a rank that was started, `-PID` for one that is gone with all that it left behind, `.` for the end
of the launch. If the lines end without a `.`, the launcher is dead. Then the guardian kills all processes in the
sessions of the launch's ranks and all processes whose environment has the launch's mark, and removes its directory.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

ISOLATION = ("-I", "-S") if sys.platform == "linux" else ("-I",)
"""How to start Python for a file that needs the standard library only. Elsewhere the guardian needs psutil."""

GUARDIAN_FILE = __file__
"""For a program that needs the standard library only, and runs it by `runpy.run_path`."""

_DETACHED = "--detached"
# A process that the launcher was starting when it died shows its environment only after its exec.
_LEAST_S = 1.0
_MOST_S = 60.0
_PAUSE_S = 0.05
_WAIT_S = 0.001
_STDERR = 2
_END_S = 5.0
_SESSION_FIELD = 3  # of /proc/PID/stat, counted behind the program's name


class Guardian:
    """The launcher's side: a guardian runs from construction on, until `dismiss` or `end_all`. Thread-safe."""

    def __init__(
        self,
        directory: Path | None,
        mark: str,
        variables: Mapping[str, str] | None = None,
        *,
        is_detached: bool = False,
    ) -> None:
        """`directory`, if any, is removed, and processes with `mark` (`NAME=value`) in their environment are killed.

        `variables` is the guardian's own environment; None for this process's. `is_detached`: it does not stay a child
        of this process, for somebody who kills this process with its children. Then nobody can wait for it.
        """
        options = [_DETACHED] if is_detached else []

        def start(from_launcher: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, *ISOLATION, __file__, str(directory or ""), mark, *options],
                env=variables,
                cwd="/",
                stdin=from_launcher,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

        self._begin(start)

    @classmethod
    def forked(cls, mark: str) -> Guardian:
        """A guardian that costs no start of Python, for a process that has only one thread yet."""
        guardian = cls.__new__(cls)
        guardian._begin(lambda from_launcher: _Fork(from_launcher, mark))
        return guardian

    def _begin(self, start: Callable[[int], subprocess.Popen[bytes] | _Fork]) -> None:
        from_launcher, self._to_guardian = os.pipe()
        self._lock = threading.Lock()
        try:
            self._process = start(from_launcher)
        except BaseException:
            self._close()
            raise
        finally:
            os.close(from_launcher)

    def guard(self, pid: int) -> None:
        """Adds a process that leads a session of its own."""
        self._tell(f"+{pid}")

    def release(self, pid: int) -> None:
        """The process is gone, with all that it left behind."""
        self._tell(f"-{pid}")

    def dismiss(self) -> None:
        """Nothing is left to end, or `end_all` was called: waits for the guardian's own end, but not for long."""
        self._tell(".")
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)

    def end_all(self, *, wait: bool = False) -> None:
        """Lets the guardian do what it does when the launcher dies: kill all, and remove the directory.

        Waiting for that takes at least a second.
        """
        self._close()
        if wait:
            self._process.wait()

    def _tell(self, line: str) -> None:
        # Without a guardian (somebody killed it) the launch goes on.
        with self._lock, contextlib.suppress(OSError):
            os.write(self._to_guardian, f"{line}\n".encode())

    def _close(self) -> None:
        with self._lock:
            if self._to_guardian >= 0:
                os.close(self._to_guardian)
                self._to_guardian = -1


class _Fork:
    """A guardian that was forked from this process, and holds nothing of it."""

    def __init__(self, from_launcher: int, mark: str) -> None:
        self._has_ended = False
        self._pid = os.fork()
        if self._pid:
            return
        try:
            os.setsid()
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for number, descriptor in enumerate((from_launcher, null, null)):
                os.dup2(descriptor, number)
            close_all_but_standard_streams()
            with os.fdopen(0) as lines:
                main("", mark, lines)
        finally:
            os._exit(0)

    def wait(self, timeout: float = math.inf) -> None:
        deadline = time.monotonic() + timeout
        while not self._has_ended and os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("guardian", timeout)
            time.sleep(_WAIT_S)
        self._has_ended = True


def close_all_but_standard_streams() -> None:
    """In a child that was forked: it holds no file, lock or socket of its parent then."""
    # Not up to the limit, which can be a thousand million.
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - the listing of the directory is among them, and gone by now
        if int(name) > _STDERR:
            with contextlib.suppress(OSError):
                os.close(int(name))


def main(directory: str, mark: str, lines: Iterable[str]) -> None:
    # Slurm sends a signal to every process of a step.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    sessions = sessions_left(lines)
    if sessions is not None:
        _kill_all(mark, sessions)
        if directory:
            shutil.rmtree(directory, ignore_errors=True)


def sessions_left(lines: Iterable[str]) -> set[int] | None:
    """The pids of the ranks that are left when the lines end; None after a `.`."""
    sessions: set[int] = set()
    for line in lines:
        if line == ".\n":
            return None
        # A line that is cut short would name another process.
        if line.endswith("\n"):
            (sessions.add if line[0] == "+" else sessions.discard)(int(line[1:]))
    return sessions


def _kill_all(mark: str, sessions: Collection[int]) -> None:
    """Again and again, until none is found: a process that is killed may just have started another."""
    start = time.monotonic()
    find = _pids_on_linux if sys.platform == "linux" else _pids_elsewhere
    while True:
        found = [pid for pid in find(mark, sessions) if pid != os.getpid()]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        passed_s = time.monotonic() - start
        if passed_s > _MOST_S or (not found and passed_s > _LEAST_S):
            return
        time.sleep(_PAUSE_S)


def _pids_on_linux(mark: str, sessions: Collection[int]) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
            is_alive = fields[0] not in (b"Z", b"X")
            if is_alive and (int(fields[_SESSION_FIELD]) in sessions or _is_marked(process, mark)):
                yield int(process.name)


def _is_marked(process: Path, mark: str) -> bool:
    return os.fsencode(mark) in (process / "environ").read_bytes().split(b"\0")


def _pids_elsewhere(mark: str, sessions: Collection[int]) -> Iterator[int]:
    import psutil  # a third-party library, which Linux does without

    name, _, value = mark.partition("=")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) in sessions or process.environ().get(name) == value:
                yield process.pid


if __name__ == "__main__":
    if _DETACHED in sys.argv[3:] and os.fork():
        os._exit(0)
    main(sys.argv[1], sys.argv[2], sys.stdin)
