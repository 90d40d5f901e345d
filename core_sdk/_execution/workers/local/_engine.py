"""Starts workers as children of this process, each in a session of its own, with a guardian for all of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from core_sdk._execution.workers._engine import Death, Engine, Team, WorkerAnswer, WorkerLost
from core_sdk._execution.workers.local._processes import WorkerProcess, WorkerSpawner, execute
from core_sdk._ground.descriptors import moved_up
from core_sdk._ground.environment import Mark, RankPlace
from core_sdk._ground.environment.names import LAUNCH_DIR_VARIABLE, RENDEZVOUS_VARIABLE
from core_sdk._machine.processes import Guardian, RankProcesses, cause_of, end_marked, excerpt
from core_sdk._machine.processes.output import RankOutput, Sink
from core_sdk.errors import WorkerDiedError, WorkersNotStartedError

Start = Callable[[Mapping[str, str], Sequence[int], int, int], WorkerProcess]
"""Starts a worker with these additional variables, its two connections, stdout and stderr."""

# Processes that a worker leaves behind may hold its connection open.
_LOOK_S = 0.2
_DEATH_S = 2.0
# The time that an idle worker may take to run what is registered for the end of its process.
_LEAVING_S = 2.0


class LocalEngine(Engine):
    """Workers on this machine."""

    def __init__(self, *, log_path: str | os.PathLike[str] | None = None, imported_modules: Sequence[str] = ()) -> None:
        """The output of the workers is shown, each line with its rank, and appended to the file `log_path`.

        With `imported_modules`, workers are forked from a process of this program that has imported these modules, and
        has run no code of the user's.
        """
        super().__init__(log_path)
        self._imported_modules = imported_modules
        self._processes = WorkerProcesses(self.shown.stdout, self.shown.stderr)

    def start(self, num_workers: int) -> LocalTeam:
        places = [RankPlace(rank, num_workers, rank, num_workers, 0, 1) for rank in range(num_workers)]
        variables = {RENDEZVOUS_VARIABLE: str(self._processes.new_meeting_place())}
        start = execute
        # On other systems libraries may not survive a fork.
        if self._imported_modules and sys.platform == "linux":
            start = WorkerSpawner.of_this_program(self._imported_modules).start
        return LocalTeam(self._processes, places, "127.0.0.1", variables, ProgramArguments(sys.path, sys.argv), start)

    def close(self) -> None:
        self._processes.close()
        super().close()


class ProgramArguments(NamedTuple):
    """The values that a worker's process takes over from the program."""

    path: list[str]
    """`sys.path`"""
    arguments: list[str]
    """`sys.argv`"""


class _WorkerConnection(NamedTuple):
    """A connection to a worker, for one request at a time."""

    connection: Connection[bytes, bytes]
    lock: threading.Lock


class WorkerProcesses:
    """The private directory, the guardian and the output that the workers of all starts share."""

    def __init__(self, stdout: Sink, stderr: Sink, *, is_detached: bool = False) -> None:
        """`is_detached`: the guardian does not stay a child of this process."""
        # A short path, since the paths of sockets in it are limited to about a hundred bytes.
        self._directory = Path(tempfile.mkdtemp(prefix="core-sdk-workers-")).resolve()
        self._mark = Mark.of(self._directory)
        try:
            self.guardian = Guardian(self._directory, str(self._mark), is_detached=is_detached)
        except BaseException:
            self._directory.rmdir()
            raise
        self.variables = {LAUNCH_DIR_VARIABLE: str(self._directory), **self._mark.variables}
        """The variables of all workers."""
        self.output = RankOutput(self._directory, stdout, stderr)
        self._num_meetings = 0
        self._is_closed = False

    def new_meeting_place(self) -> Path:
        """Makes a new directory, in which the ranks of one start find each other."""
        self._num_meetings += 1
        place = self._directory / f"ranks-{self._num_meetings}"
        place.mkdir(mode=0o700)
        return place

    def close(self) -> None:
        """Ends what workers have left behind, and removes the directory. Does nothing the second time."""
        if not self._is_closed:
            self._is_closed = True
            # These processes are in sessions of their own.
            end_marked(str(self._mark), least_s=0)
            self.output.close()
            shutil.rmtree(self._directory, ignore_errors=True)
            self.guardian.dismiss()


class LocalTeam(Team):
    """The workers of one start: all of them, or one node's."""

    def __init__(
        self,
        processes: WorkerProcesses,
        places: Sequence[RankPlace],
        address: str,
        variables: Mapping[str, str],
        order: ProgramArguments,
        start: Start = execute,
    ) -> None:
        """Starts workers as `Engine.start` does."""
        self.places = places
        self.address = address
        self._output = processes.output
        self._ending = threading.Lock()
        self._is_ended = False
        self._lines: dict[int, _WorkerConnection] = {}
        self._lines_of_threads: dict[int, _WorkerConnection] = {}
        self._processes: dict[int, WorkerProcess] = {}
        self._ranks = RankProcesses(processes.guardian, processes.output)
        try:
            for place in places:
                self._start(start, place, {**processes.variables, **variables}, order)
            for place in places:
                self._await_ready(place.rank)
        except BaseException as error:
            # Otherwise an interrupted notebook would keep them.
            self.end(0)
            if isinstance(error, OSError):
                raise WorkersNotStartedError(len(places), error.strerror or str(error)) from error
            raise

    def exchange(self, rank: int, request: bytes, *, in_thread: bool = False) -> WorkerAnswer:
        line = (self._lines_of_threads if in_thread else self._lines)[rank]
        with line.lock:
            try:
                line.connection.send_bytes(request)
                return WorkerAnswer(is_failure=bool(self._receive(rank, line)), content=self._receive(rank, line))
            except (EOFError, OSError) as error:
                raise WorkerLost from error

    def death(self, rank: int) -> Death:
        has_ended = self._ranks.await_ends([rank], _DEATH_S)
        self._ranks.await_output(rank)
        seen = self._ranks.seen(rank, self._ranks.deaths().get(rank))
        cause = cause_of(seen) if has_ended else "closed its connection, and did not end"
        return Death(seen, f"pid {seen.pid}", cause, excerpt(seen.stderr))

    def signal(self, rank: int, number: int) -> None:
        with self._ending:
            # It is not reaped before the end, so its pid cannot mean another process.
            if not self._is_ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._processes[rank].pid, number)

    def end(self, grace_s: float) -> None:
        if grace_s == 0:
            # Another thread may be waiting for their grace.
            self._ranks.kill()
        with self._ending:
            if self._is_ended:
                return
            self._is_ended = True
            lines = [*self._lines.values(), *self._lines_of_threads.values()]
            for line in lines:
                _shut_down(line.connection)
            if grace_s > 0:
                # Idle workers leave when the connection is closed.
                self._ranks.await_ends(self._ranks.pids, _LEAVING_S)
            self._ranks.end(grace_s)
            self._ranks.release()
            for rank in self._ranks.deaths():
                self._processes[rank].wait()
            for line in lines:
                with line.lock:
                    line.connection.close()

    def _start(self, start: Start, place: RankPlace, variables: Mapping[str, str], order: ProgramArguments) -> None:
        (own, theirs), (own_of_thread, theirs_of_thread) = socket.socketpair(), socket.socketpair()
        line = self._lines[place.rank] = _WorkerConnection(Connection(moved_up(own.detach())), threading.Lock())
        self._lines_of_threads[place.rank] = _WorkerConnection(
            Connection(moved_up(own_of_thread.detach())), threading.Lock()
        )
        pipes = self._output.open(place.rank)
        with (
            theirs,
            theirs_of_thread,
            Path(pipes.stdout_path).open("wb") as stdout,
            Path(pipes.stderr_path).open("wb") as stderr,
        ):
            connections = [theirs.fileno(), theirs_of_thread.fileno()]
            process = start({**place.variables(), **variables}, connections, stdout.fileno(), stderr.fileno())
        self._processes[place.rank] = process
        self._ranks.add(place.rank, process.pid)
        with contextlib.suppress(ConnectionError):  # it has ended already, which is seen when it is waited for
            line.connection.send_bytes(json.dumps(order._asdict()).encode())

    def _await_ready(self, rank: int) -> None:
        try:
            self._receive(rank, self._lines[rank])
        except (EOFError, OSError) as error:
            death = self.death(rank)
            if (death.seen.code or 0) < 0:  # somebody else has ended it: it need not happen again
                raise WorkerDiedError(rank, death.process, death.cause, death.last_lines) from error
            reason = "".join(f"\n    {line}" for line in death.last_lines)
            raise WorkersNotStartedError(len(self.places), f"worker {rank} {death.cause}{reason}") from error

    def _receive(self, rank: int, line: _WorkerConnection) -> bytes:
        while not line.connection.poll(_LOOK_S):
            if rank in self._ranks.deaths():
                raise EOFError
        return line.connection.recv_bytes()


def _shut_down(connection: Connection[bytes, bytes]) -> None:
    """Ends reading from the connection with an `EOFError`. Keeps its descriptor from being reused."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same, contextlib.suppress(OSError):
        same.shutdown(socket.SHUT_RDWR)
