"""Starts the process of a worker on this machine: executes it, or forks it from a process with imported modules.

The process is a child of this one, and leads a session of its own.

Each `fit()` has fresh processes, and importing torch takes seconds. Forking was measured beside spare processes that
are executed ahead, on 2 busy cores. After one `fit()`, the next takes 1 s with 2 forked workers and 2.5 s with 8; until
as many spare ones have imported torch again, it takes 8 s and 35 s. A forked worker has 18 MiB of memory of its own, an
executed one 150. So workers are forked where the engine is given modules, from a process that has never run user code.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from core_sdk.environment import worker_variables
from core_sdk.workers.local._spawner import MOST_BYTES

_DIRECTORY = Path(__file__).parent
_LIBC = ctypes.CDLL(None)
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class WorkerProcess(Protocol):
    @property
    def pid(self) -> int: ...

    def wait(self) -> int:
        """Reaps the process. Called after its end."""


def execute(variables: Mapping[str, str], connection: int, stdout: int, stderr: int) -> WorkerProcess:
    """Starts a worker as a new Python. Raises `OSError`."""
    return subprocess.Popen(
        [sys.executable, "-P", str(_DIRECTORY / "_worker.py"), str(connection)],
        env=worker_variables(variables),
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


class _Forked:
    """A process that was forked below the spawner, and is a child of this process by now."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        with contextlib.suppress(ChildProcessError):  # this process ignores SIGCHLD
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return 0


class Spawner:
    """Forks workers of this program from a process that has imported what they need. For Linux. Thread-safe."""

    _current: Spawner | None = None
    _choosing = threading.Lock()

    def __init__(self, modules: Sequence[str], variables: Mapping[str, str]) -> None:
        """Starts the process, in which libraries may read `variables` when they are imported."""
        self._origin = os.getpid(), list(modules), dict(variables)
        self._forking = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(_DIRECTORY / "_spawner.py"), str(theirs.fileno())],
                    env=variables,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except BaseException:
                self._requests.close()
                raise
        self._requests.send(json.dumps({"path": sys.path, "modules": modules}).encode())
        atexit.register(self.close)

    @classmethod
    def of_this_program(cls, modules: Sequence[str]) -> Spawner:
        """Returns the spawner. Makes a new one in a forked program, in another environment, or after it was killed."""
        variables = worker_variables({})
        with cls._choosing:
            last = cls._current
            if (
                last is None
                or last._origin != (os.getpid(), list(modules), variables)
                or last._process.poll() is not None
            ):
                if last is not None:
                    last.close()
                cls._current = last = cls(modules, variables)
        return last

    def fork(self, variables: Mapping[str, str], connection: int, stdout: int, stderr: int) -> WorkerProcess:
        """Forks a worker. Blocks. Raises `OSError`."""
        request = json.dumps({"variables": variables, "directory": str(Path.cwd())}).encode()
        with self._forking:
            try:
                # The spawner is ready when it has imported the modules.
                if self._requests.recv(MOST_BYTES):
                    with _adopting_orphans():
                        socket.send_fds(self._requests, [request], [connection, stdout, stderr])
                        if (pid := int(self._requests.recv(MOST_BYTES) or -1)) > 0:
                            return _Forked(pid)
            except BaseException:
                # The next answer would be taken for another request's.
                self.close()
                raise
        raise ChildProcessError("the process that forks workers has ended, or cannot fork one")

    def close(self) -> None:
        """Ends the spawner's process, but not its workers. Does nothing the second time."""
        atexit.unregister(self.close)
        self._requests.close()
        if self._origin[0] == os.getpid():
            self._process.wait()


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Makes this process the parent of processes below it whose parents end during the block."""
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
