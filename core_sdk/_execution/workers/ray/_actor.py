"""The actor that holds one worker's place in a Ray cluster, and is the parent of the worker's process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Queue
from typing import Any

from core_sdk._execution.workers._engine import Death, WorkerAnswer
from core_sdk._execution.workers.local import LocalTeam, ProgramArguments, WorkerProcesses
from core_sdk._execution.workers.ray._cluster import RayCluster
from core_sdk._ground.environment import RankPlace
from core_sdk._ground.environment.names import RENDEZVOUS_VARIABLE
from core_sdk._machine.processes.output import Sink

NUM_THREADS = 6
"""Threads for two calls, a signal or the end during them, waiting for output, waiting for records, and one to spare."""

# How much output waits for a program that is slow to read it. Then the worker waits, in `print`.
_MOST_CHUNKS = 16
# Longer than the program's own patience, so that the program knows why its workers end.
_PATIENCE_S = 15.0


Output = Queue[tuple[int, bytes] | None]


@dataclass(frozen=True)
class ActorNode:
    """The node of an actor."""

    node_id: str
    address: str
    meeting_place: str
    """A directory that only this user can enter, for ranks that are all on this node."""


class WorkerActor:
    """The actor of one worker. Its methods run in several threads, so that a signal arrives while a call runs."""

    def __init__(self) -> None:
        self._output: Output = Queue(_MOST_CHUNKS)
        # Ray kills the children of an actor whose program has died, the worker and a guardian alike.
        self._processes = WorkerProcesses(_Outgoing(self._output, 0), _Outgoing(self._output, 1), is_detached=True)
        self._closing = threading.Lock()
        self._is_closed = False
        self._is_over = threading.Event()
        self._team: LocalTeam
        self._rank = 0

    def node(self) -> ActorNode:
        import ray

        context = ray.get_runtime_context()
        return ActorNode(
            context.get_node_id(), ray.util.get_node_ip_address(), str(self._processes.new_meeting_place())
        )

    def start(self, place: RankPlace, address: str, meeting_place: str | None, order: ProgramArguments) -> None:
        """Starts the worker as `Engine.start` does. Without a meeting place the ranks meet through torch's store."""
        variables: Mapping[str, str] = {} if meeting_place is None else {RENDEZVOUS_VARIABLE: meeting_place}
        # What the program can import, and what can be imported here.
        path = list(dict.fromkeys([*order.path, *sys.path]))
        self._rank = place.rank
        self._team = LocalTeam(self._processes, [place], address, variables, order._replace(path=path))
        threading.Thread(target=self._watch_cluster, name="core-sdk-cluster", daemon=True).start()

    def exchange(self, request: bytes, in_thread: bool = False) -> WorkerAnswer:
        """Sends a request to the worker, and waits for its answer. Raises `WorkerLost`."""
        return self._team.exchange(self._rank, request, in_thread=in_thread)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function in this process, which is not the worker's."""
        return function(*args, **kwargs)

    def death(self) -> Death:
        return self._team.death(self._rank)

    def signal(self, number: int) -> None:
        self._team.signal(self._rank, number)

    def end(self, grace_s: float) -> None:
        """Ends the worker. Its output can still be read to its end."""
        self._is_over.set()
        self._team.end(grace_s)
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._processes.close()
                self._output.put(None)

    def read_output(self) -> list[tuple[int, bytes] | None]:
        """Blocks until there is output. Returns texts, each with the number of its sink; None is the end."""
        chunks = [self._output.get()]
        while not self._output.empty():
            chunks.append(self._output.get())
        return chunks

    def _watch_cluster(self) -> None:
        """Kills the worker when the cluster is gone. Without a control plane, this actor would live on for long."""
        if RayCluster(None).await_loss(self._is_over, _PATIENCE_S):
            self._team.end(0)


class _Outgoing(Sink):
    """The way of stdout, which has number 0, or of stderr to the program."""

    def __init__(self, output: Output, number: int) -> None:
        super().__init__()
        self._output = output
        self._number = number

    def try_write(self, text: bytes) -> int:
        if text:
            self._output.put((self._number, text))
        return len(text)
