"""Guardians, which end the processes of a training if the process that supervises them is killed.

Agents, launchers, worker groups and the programs that `ssh` starts on other hosts are *supervisors*. They nest: an
agent runs a launcher, whose rank may run another one. The rule is the same for each of them:

1. A supervisor has a mark, an environment variable with a name of its own, which it gives to all that it starts. The
   processes below inherit it. So a process carries the marks of all supervisors above it.
2. A supervisor has a guardian, which carries the marks of the supervisors above, but not its own supervisor's. If the
   supervisor is gone without a word, the guardian kills all that carries its mark, and all processes in the sessions
   of its ranks, again and again, until none is left.
3. A guardian spares other guardians, and waits for them. Their supervisors carry its mark and are dead, so that they
   do the same for what is theirs. One that needs too long is killed: what it was to end carries the outer mark, too.
4. A supervisor starts another guardian if its own is killed.
5. An agent carries no mark of a supervisor above: its attempt outlives whoever has started it.

So if any process is killed, or several at once, the outermost guardian that lives finds all that is left. If there is
none, `core-sdk trial kill` does what the agent's guardian would have done.

A guardian is a process of its own, which `Guardian` starts by the path of this file. It imports the standard library
only, and lives in a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it. It reads lines
from the supervisor: `+PID` for a rank that was started, `-PID` for one that is gone with all that it left behind, `.`
for the end. If the lines end without a `.`, the supervisor is dead. In the end it removes the supervisor's directory.
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
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ISOLATION = ("-I", "-S") if sys.platform == "linux" else ("-I",)
"""How to start Python for a file that needs the standard library only. Elsewhere the guardian needs psutil."""

GUARDIAN_FILE = __file__
"""For a program that needs the standard library only, and runs it by `runpy.run_path`."""

_DETACHED = "--detached"
# Slurm sends a signal to every process of a step.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# A process that a supervisor was starting when it died shows its environment only after its exec.
_LEAST_S = 1.0
_MOST_S = 60.0
# The time for which a guardian spares one below it.
_PATIENCE_S = 5.0
_PAUSE_S = 0.05
_WAIT_S = 0.001
_STDERR = 2
_END_S = 5.0
_SESSION_FIELD = 3  # of /proc/PID/stat, counted behind the program's name

_open: weakref.WeakSet[Guardian] = weakref.WeakSet()


class Guardian:
    """The supervisor's side of a guardian, which runs from construction to `dismiss` or `end_all`. Thread-safe."""

    def __init__(
        self,
        directory: Path | None,
        mark: str,
        variables: Mapping[str, str] | None = None,
        *,
        is_detached: bool = False,
    ) -> None:
        """The guardian removes `directory`, if any, and kills processes with `mark` (`NAME=value`) in the environment.

        `variables` is the guardian's own environment; None for this process's. `is_detached`: the guardian does not
        stay a child of this process, so that it survives if this process is killed together with its children. Such a
        guardian cannot be waited for, and is not replaced.
        """
        self._prepare(directory, mark, variables, is_detached=is_detached)
        self._begin(self._start)

    @classmethod
    def forked(cls, mark: str, held: Collection[int] = ()) -> Guardian:
        """Forks a guardian, which is faster than starting Python. For a process that still has only one thread.

        The guardian keeps the descriptors `held`, such as this process's locks, open while it lives.
        """
        guardian = cls.__new__(cls)
        guardian._prepare(None, mark, None, held=held)
        guardian._begin(lambda from_supervisor: _Fork(from_supervisor, mark, guardian._held))
        return guardian

    def _prepare(
        self,
        directory: Path | None,
        mark: str,
        variables: Mapping[str, str] | None,
        *,
        is_detached: bool = False,
        held: Collection[int] = (),
    ) -> None:
        self._arguments = [str(directory or ""), mark, *([_DETACHED] if is_detached else [])]
        self._mark = mark
        self._variables = variables
        self._is_detached = is_detached
        # Copies, since an `AliveLock` closes its own descriptor in forked children.
        self._held = [os.dup(descriptor) for descriptor in held]
        self._guarded: set[int] = set()
        self._to_guardian = -1
        self._is_over = False
        self._is_watched = False
        self._lock = threading.Lock()
        _open.add(self)

    def _start(self, from_supervisor: int) -> subprocess.Popen[bytes]:
        # The guardian inherits the mask, so that no signal ends it before it ignores them.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            return subprocess.Popen(
                [sys.executable, *ISOLATION, __file__, *self._arguments],
                env=self._variables,
                cwd="/",
                stdin=from_supervisor,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=self._held,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _begin(self, start: Callable[[int], subprocess.Popen[bytes] | _Fork]) -> None:
        from_supervisor, self._to_guardian = os.pipe()
        try:
            self._process = start(from_supervisor)
        except BaseException:
            # Without the lock, which `_replace_killed` holds, and the constructor does not need.
            self._is_over = True
            self._close_descriptors()
            raise
        finally:
            os.close(from_supervisor)

    def guard(self, pid: int) -> None:
        """Adds a process that leads a session of its own."""
        with self._lock:
            self._guarded.add(pid)
            self._tell(f"+{pid}")
            if not self._is_watched and not self._is_detached:
                self._is_watched = True
                threading.Thread(target=self._replace_killed, name="core-sdk-guardian", daemon=True).start()

    def release(self, pid: int) -> None:
        """Removes a process that has ended, together with all that it left behind."""
        with self._lock:
            self._guarded.discard(pid)
            self._tell(f"-{pid}")

    def end_marked(self) -> None:
        """Kills all processes that carry the supervisor's mark, and waits for inner guardians. Blocks."""
        end_marked(self._mark, least_s=0)

    def await_inner(self) -> None:
        """Waits for the guardians of supervisors below this one: if theirs was killed, they are ending processes.

        The wait is limited, since a supervisor that was left behind on purpose keeps its guardian.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and any(found.is_guardian for found in _find(self._mark, ())):
            time.sleep(_PAUSE_S)

    def dismiss(self) -> None:
        """Tells the guardian that nothing is left to end, and waits a limited time for its exit.

        After `end_all` it only waits.
        """
        with self._lock:
            self._tell(".")
            self._is_over = True
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)

    def end_all(self) -> None:
        """Has the guardian kill all and remove the directory, as if the supervisor had died. Does not wait."""
        self._close()

    def _tell(self, line: str) -> None:
        # If the guardian was killed, the next one gets all lines again.
        if self._to_guardian >= 0:
            with contextlib.suppress(OSError):
                os.write(self._to_guardian, f"{line}\n".encode())

    def _replace_killed(self) -> None:
        while True:
            began_at = time.monotonic()
            with contextlib.suppress(ChildProcessError):  # this process ignores SIGCHLD
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            if time.monotonic() - began_at < _LEAST_S:
                time.sleep(_LEAST_S)  # limits how often a guardian that cannot run is started
            with self._lock:
                if self._is_over:
                    return
                os.close(self._to_guardian)
                self._to_guardian = -1
                self._process.wait()
                try:
                    self._begin(self._start)
                except OSError:  # no process can be started: the training goes on without a guardian
                    return
                for pid in self._guarded:
                    self._tell(f"+{pid}")

    def _close(self) -> None:
        with self._lock:
            self._is_over = True
            self._close_descriptors()

    def _close_descriptors(self) -> None:
        for descriptor in (self._to_guardian, *self._held):
            if descriptor >= 0:
                os.close(descriptor)
        self._to_guardian, self._held = -1, []


class _Fork:
    """A guardian that was forked from this process, and keeps only some of its descriptors."""

    def __init__(self, from_supervisor: int, mark: str, held: Collection[int]) -> None:
        self._has_ended = False
        kept = [os.dup(descriptor) for descriptor in held]
        self.pid = os.fork()
        if self.pid:
            for descriptor in kept:
                os.close(descriptor)
            return
        try:
            os.setsid()
            os.chdir("/")
            null = os.open(os.devnull, os.O_RDWR)
            for number, descriptor in enumerate((from_supervisor, null, null)):
                os.dup2(descriptor, number)
            close_all_but_standard_streams(kept)
            with os.fdopen(0) as lines:
                main("", mark, lines)
        finally:
            os._exit(0)

    def wait(self, timeout: float = math.inf) -> None:
        deadline = time.monotonic() + timeout
        while not self._has_ended and os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("guardian", timeout)
            time.sleep(_WAIT_S)
        self._has_ended = True


def close_all_but_standard_streams(kept: Collection[int] = ()) -> None:
    """Closes, in a forked child, all files, locks and sockets of its parent."""
    # Lists the open descriptors, since their limit can be a thousand million.
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - the listing of the directory is among them, and gone by now
        if int(name) > _STDERR and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def main(directory: str, mark: str, lines: Iterable[str]) -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    sessions = sessions_left(lines)
    if sessions is not None:
        end_marked(mark, sessions)
        if directory:
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
        found = [each for each in _find(mark, sessions) if each.pid != os.getpid()]
        passed_s = time.monotonic() - start
        for each in found:
            if not each.is_guardian or passed_s > _PATIENCE_S:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(each.pid, signal.SIGKILL)
        if passed_s > _MOST_S or (not found and passed_s >= least_s):
            return [each.pid for each in found]
        time.sleep(_PAUSE_S)


def is_any_marked(mark: str) -> bool:
    """Whether a process of this machine carries the mark."""
    return any(_find(mark, ()))


class _Found(NamedTuple):
    pid: int
    is_guardian: bool


def _find(mark: str, sessions: Collection[int]) -> Iterator[_Found]:
    """Yields the processes that carry the mark or are in the sessions."""
    return _find_on_linux(mark, sessions) if sys.platform == "linux" else _find_elsewhere(mark, sessions)


def _find_on_linux(mark: str, sessions: Collection[int]) -> Iterator[_Found]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
            is_alive = fields[0] not in (b"Z", b"X")
            if is_alive and (int(fields[_SESSION_FIELD]) in sessions or _is_marked(process, mark)):
                arguments = map(os.fsdecode, (process / "cmdline").read_bytes().split(b"\0"))
                yield _Found(int(process.name), _is_guardian(list(arguments)))


def _is_marked(process: Path, mark: str) -> bool:
    return os.fsencode(mark) in (process / "environ").read_bytes().split(b"\0")


def _find_elsewhere(mark: str, sessions: Collection[int]) -> Iterator[_Found]:
    import psutil  # a third-party library, which Linux does without

    name, _, value = mark.partition("=")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) in sessions or process.environ().get(name) == value:
                yield _Found(process.pid, _is_guardian(process.cmdline()))


def _is_guardian(arguments: list[str]) -> bool:
    """Whether the arguments are a guardian's. A forked guardian needs no check: as an agent's, it carries no mark."""
    return arguments[1 : len(ISOLATION) + 2] == [*ISOLATION, __file__]


def _leave_to_parent() -> None:
    """Closes, in a forked child, the pipes to guardians, which live until no process can write to them."""
    for guardian in list(_open):
        guardian._close_descriptors()
        guardian._is_over = True


os.register_at_fork(after_in_child=_leave_to_parent)

if __name__ == "__main__":
    if _DETACHED in sys.argv[3:] and os.fork():
        os._exit(0)
    main(sys.argv[1], sys.argv[2], sys.stdin)
