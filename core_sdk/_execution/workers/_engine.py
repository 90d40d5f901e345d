"""The seam between a program and the engines that start its workers."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from core_sdk._execution.workers._output import ShownOutput
from core_sdk._ground.environment import RankPlace
from core_sdk._machine.processes import RankSeen

P = ParamSpec("P")
T = TypeVar("T")


class WorkerAnswer(NamedTuple):
    """A worker's answer to one request."""

    is_failure: bool
    content: bytes


class WorkerLost(Exception):
    """A worker has ended, or was ended, before it answered."""


class Death(msgspec.Struct, frozen=True):
    """The unexpected end of a worker."""

    seen: RankSeen
    process: str
    """The worker's process, for messages."""
    cause: str
    """The cause, in words that follow "worker 1"."""
    last_lines: Sequence[str] = ()
    """The end of its stderr."""


class Team(ABC):
    """The workers of one start. Thread-safe."""

    places: Sequence[RankPlace]
    """The place of each rank."""
    address: str
    """The address at which all workers can reach the node of rank 0."""

    @abstractmethod
    def exchange(self, rank: int, request: bytes, *, in_thread: bool = False) -> WorkerAnswer:
        """Sends a request, and waits for its answer. With `in_thread` a thread of the worker answers it.

        Of each kind, there is one request at a time for each rank. Raises `WorkerLost`.
        """

    @abstractmethod
    def death(self, rank: int) -> Death:
        """Returns how a lost worker has ended. Blocks for a moment, until that is known."""

    @abstractmethod
    def signal(self, rank: int, number: int) -> None:
        """Sends a signal to the worker's process. Does nothing if it has ended."""

    def call_beside(self, rank: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function in the process that has started the worker, which outlives it. Raises `WorkerLost`.

        The function must be importable there, and must not wait for the worker.
        """
        return function(*args, **kwargs)

    def hold(self) -> AbstractContextManager[object]:
        """Keeps the processes of `call_beside` alive during the block. `end` waits for the block, but not forever.

        One block at a time; the next one waits.
        """
        return contextlib.nullcontext()

    @abstractmethod
    def end(self, grace_s: float) -> None:
        """Ends all workers, and blocks until they are gone. Does nothing the second time.

        Idle workers leave. The others get a SIGTERM, and are killed after `grace_s`. With a grace of 0 all are killed
        at once.
        """


class Engine(ABC):
    """Starts workers, and shows what they write. A group keeps it open and closes it."""

    def __init__(self, log_path: str | os.PathLike[str] | None = None) -> None:
        """The output of the workers is shown, each line with its rank, and appended to the file `log_path`."""
        self.shown = ShownOutput(log_path)

    @abstractmethod
    def start(self, num_workers: int) -> Team:
        """Starts workers, and blocks until all of them listen.

        Raises `WorkerDiedError` if one is killed or lost meanwhile, and `WorkersNotStartedError` for what would happen
        again.
        """

    def num_available(self) -> int | None:
        """Returns how many workers could be started if this engine's workers ended; None if there is no limit.

        Raises `RayClusterError`.
        """
        return None

    def log_to(self, log_path: str | os.PathLike[str] | None) -> None:
        """Appends the later output of the workers to this file, in addition to showing it; None to show it only."""
        self.shown.log_to(log_path)

    def close(self) -> None:
        """Called when the last team has ended."""
        self.shown.close()
