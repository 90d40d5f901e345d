"""Starts the process of a worker on this machine: executes it, or forks it from a process with imported modules."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from core_sdk.environment import worker_variables
from core_sdk.processes import await_end
from core_sdk.workers.local._spawner import MOST_BYTES

_DIRECTORY = Path(__file__).parent


class WorkerProcess(ABC):
    """A worker's process, which leads its own session. Until it is reaped, its pid cannot mean another process."""

    pid: int

    @abstractmethod
    def await_end(self) -> int:
        """Blocks until the process ends. Returns its exit status, or -N for death by signal N."""

    @abstractmethod
    def reap(self) -> None:
        """Reaps the process. Called once, after its end."""


class Executed(WorkerProcess):
    """A process that has been executed as a new Python."""

    def __init__(self, variables: Mapping[str, str], connection: int, stdout: int, stderr: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_DIRECTORY / "_worker.py"), str(connection)],
            env=worker_variables(variables),
            pass_fds=[connection],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def await_end(self) -> int:
        return await_end(self.pid)

    def reap(self) -> None:
        self._process.wait()


class Forked(WorkerProcess):
    """A process that was forked with imported modules, before any code of the user's had run."""

    def __init__(self, life: socket.socket) -> None:
        """Blocks until the keeper has sent the worker's pid over `life`. Raises `OSError`."""
        self._life = life
        self.pid = int(life.recv(MOST_BYTES) or 0)
        if not self.pid:
            raise ChildProcessError("the process that forks workers has ended, or cannot fork one")
        # The keeper has not reaped it, so this is the worker even if it has ended already.
        self._process = psutil.Process(self.pid)

    def await_end(self) -> int:
        """Returns the exit status; -9 if the keeper was killed, so that the status is unknown."""
        with contextlib.suppress(OSError):
            if told := self._life.recv(MOST_BYTES):
                return int(told)
        self._process.wait()
        return -9

    def reap(self) -> None:
        with self._life, contextlib.suppress(OSError):
            self._life.shutdown(socket.SHUT_WR)
            self._life.recv(1)


class Spawner:
    """Forks workers of this program from a process that has imported what they need. Thread-safe."""

    _current: Spawner | None = None
    _choosing = threading.Lock()

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables
        """The environment of the process. Libraries may have read it when they were imported."""
        self._program = os.getpid()
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
        self._requests.send(json.dumps(sys.path).encode())
        atexit.register(self.close)

    @classmethod
    def of_this_program(cls) -> Spawner:
        """Returns the spawner. Makes a new one in a forked program, in another environment, or after it was killed."""
        variables = worker_variables({})
        with cls._choosing:
            last = cls._current
            if last is None or last.variables != variables or not last._is_ours():
                if last is not None:
                    last.close()
                cls._current = last = cls(variables)
        return last

    def start(
        self, modules: Sequence[str], variables: Mapping[str, str], connection: int, stdout: int, stderr: int
    ) -> Forked:
        """Forks a worker that begins with these modules. Blocks. Raises `OSError`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps({"modules": modules, "variables": variables, "directory": str(Path.cwd())}).encode()
        try:
            with theirs:
                socket.send_fds(self._requests, [request], [connection, stdout, stderr, theirs.fileno()])
            return Forked(ours)
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        """Ends the spawner's process, but not its workers. Does nothing the second time."""
        atexit.unregister(self.close)
        self._requests.close()
        if self._program == os.getpid():
            self._process.wait()

    def _is_ours(self) -> bool:
        return self._program == os.getpid() and self._process.poll() is None
