"""The seam: who starts workers, and how a program speaks with them."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, ParamSpec, TypeVar

from core_sdk.environment import RankPlace
from core_sdk.processes import RankSeen

P = ParamSpec("P")
T = TypeVar("T")


class Answer(NamedTuple):
    """What a worker answers to one request."""

    is_failure: bool
    content: bytes


class WorkerLost(Exception):
    """A worker has ended, or was ended, before it answered."""


@dataclass(frozen=True)
class Death:
    """How a worker ended that nobody has ended."""

    seen: RankSeen
    process: str
    """The worker's process, for messages."""
    cause: str
    """Words that follow "worker 1"."""
    last_lines: Sequence[str] = ()
    """The end of its stderr."""


class Team(ABC):
    """The workers of one start. Thread-safe."""

    places: Sequence[RankPlace]
    """By rank."""
    address: str
    """At which all workers can reach the node of rank 0."""

    @abstractmethod
    def exchange(self, rank: int, request: bytes) -> Answer:
        """Sends a request, and waits for its answer. One thread at a time for each rank. Raises `WorkerLost`."""

    @abstractmethod
    def death(self, rank: int) -> Death:
        """How the worker that was lost has ended. Blocks for a moment, until that is known."""

    @abstractmethod
    def signal(self, rank: int, number: int) -> None:
        """Sends a signal to the worker's process. Does nothing if it has ended."""

    @abstractmethod
    def call_beside(self, rank: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function in the process that has started the worker, which outlives it. Raises `WorkerLost`.

        The function is one that can be imported there, and does not wait for anything of the worker's.
        """

    def hold(self) -> AbstractContextManager[None]:
        """Until the end of the block these processes are not ended: `end` waits for that, but not for ever."""
        return contextlib.nullcontext()

    @abstractmethod
    def end(self, grace_s: float) -> None:
        """Idle workers leave. The others get a SIGTERM, and after `grace_s` they are killed. Returns when all are gone.

        With a grace of 0 all are killed at once. Does nothing the second time.
        """


class Engine(ABC):
    """Starts workers. Open while a group uses it."""

    @abstractmethod
    def start(self, num_workers: int) -> Team:
        """Starts workers, and returns once all of them listen. Raises `WorkersNotStartedError`."""

    @abstractmethod
    def num_available(self) -> int | None:
        """How many workers could be started if those of this engine ended; None where nothing limits them.

        Raises `RayClusterError`.
        """

    @abstractmethod
    def log_to(self, log_path: str | os.PathLike[str] | None) -> None:
        """From now on what workers write is appended to this file, beside being shown; None if it is shown only."""

    def close(self) -> None:  # noqa: B027 - not every engine holds something
        """Called when the last team has ended."""
