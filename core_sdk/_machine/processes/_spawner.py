"""A spawner: a process that has imported modules once, and forks others, which need not import them again.

Agents are forked by it for a master, which starts many, and workers for each `fit()`, so that importing torch does not
take seconds each time. Spare processes that are executed ahead were measured with it, with torch on 2 busy cores.
After one `fit()`, the next takes 1 s with 2 forked workers and 2.5 s with 8; until as many spare ones have imported
torch again, it takes 8 s and 35 s. A forked worker has 18 MiB of memory of its own, an executed one 150. And what has
been forked begins like new: the spawner has never run code of the user's.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core_sdk._ground.descriptors import moved_up_socket
from core_sdk._machine.processes._signals import start_helper

_PROGRAM = Path(__file__).with_name("_spawner_process.py")
_LIBC = ctypes.CDLL(None)
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
# An argument without a meaning, over which a forked process can write its own command line.
_ROOM = " " * 2000


class Forked:
    """A process that was forked by a spawner, and leads a session of its own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Reaps the process, which is a child of this one. Returns its exit status, or -N for death by signal N."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # this process ignores SIGCHLD
            return 0


class Spawner:
    """Starts its process at once, and again if somebody has killed it. It ends with this process. Thread-safe."""

    # One for all spawners, since whether orphans are adopted is a setting of this whole process.
    _forking = threading.Lock()

    def __init__(
        self,
        function: str,
        variables: Mapping[str, str],
        modules: Sequence[str] = (),
        *,
        is_adopting: bool,
        is_like_script: bool = False,
    ) -> None:
        """The process imports `modules`. Libraries may read its environment, `variables`, when they are imported.

        A forked process calls `function` (`module:name`) with its request and descriptors, while all signals are
        blocked. If `is_adopting`, it becomes a child of this process, which has to reap it. Only Linux can do that.

        If `is_like_script`, the process finds modules as a script would that is started with these variables, instead
        of as this program does, and leaves out modules that it cannot import.
        """
        self._variables = variables
        self._is_adopting = is_adopting
        self._is_like_script = is_like_script
        self._order = {
            "path": None if is_like_script else sys.path,
            "modules": list(modules),
            "function": function,
            "is_orphaning": is_adopting,
        }
        self._program = os.getpid()
        self._begin()
        atexit.register(self.close)

    def fork(self, request: object, descriptors: Sequence[int]) -> Forked:
        """Forks a process. Blocks. Raises `OSError`."""
        with self._forking:
            try:
                pid = self._ask(request, descriptors)
                if pid is None:
                    self._end()
                    self._begin()
                    pid = self._ask(request, descriptors)
            except BaseException:
                # The next answer would be taken for another request's.
                self._end()
                raise
        if pid is None or pid < 0:
            raise ChildProcessError("the process that forks others has ended, or cannot fork one")
        return Forked(pid)

    def fork_if_ready(self, request: object, descriptors: Sequence[int]) -> Forked | None:
        """Forks a process, or returns None if the spawner's has ended or still imports. Then it does not block."""
        with self._forking:
            is_ready = self._is_ready or bool(select.select([self._requests], [], [], 0)[0])
            pid = self._ask(request, descriptors) if is_ready else None
        return None if pid is None or pid < 0 else Forked(pid)

    def close(self) -> None:
        """Ends the spawner's process, but none that it has forked. Does nothing the second time."""
        atexit.unregister(self.close)
        self._end()

    def _begin(self) -> None:
        own, theirs = socket.socketpair()
        self._is_ready = False
        self._requests = moved_up_socket(own)
        self._answers = self._requests.makefile("rb")
        try:
            with theirs:
                descriptor = theirs.fileno()
                self.process = start_helper(
                    [
                        *([] if self._is_like_script else ["-P"]),
                        _PROGRAM,
                        str(descriptor),
                        *([_ROOM] if self._is_like_script else []),
                    ],
                    env=self._variables,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[descriptor],
                )
        except BaseException:
            self._answers.close()
            self._requests.close()
            raise
        self._requests.sendall(_encode(self._order))

    def _ask(self, request: object, descriptors: Sequence[int]) -> int | None:
        """Returns the pid of the forked process, -1 if none can be forked, and None if the spawner has ended."""
        try:
            # The spawner is ready when it has imported the modules.
            if self._is_ready or self._answers.readline():
                self._is_ready = False
                with _adopting_orphans() if self._is_adopting else contextlib.nullcontext():
                    socket.send_fds(self._requests, [_encode(request)], descriptors)
                    pid = int(self._answers.readline() or 0) or None
                self._is_ready = bool(self._answers.readline())
                return pid
        except (OSError, ValueError):  # its end has been seen already
            return None
        return None

    def _end(self) -> None:
        self._answers.close()
        self._requests.close()
        if self._program == os.getpid():
            self.process.wait()


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


def _encode(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"
