"""A worker group: its calls, and its starts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from msgspec.structs import replace

from core_sdk._execution.workers import _torch
from core_sdk._execution.workers._call import Call
from core_sdk._execution.workers._engine import Engine, Team, WorkerAnswer, WorkerLost
from core_sdk._execution.workers._messages import encode_request, name_of
from core_sdk._execution.workers.local import LocalEngine
from core_sdk._ground.environment import RankPlace
from core_sdk._machine.processes import WELL, RankSeen
from core_sdk.errors import NodeLostError, WorkerDiedError, WorkerError

P = ParamSpec("P")
T = TypeVar("T")

_TORCH_TIMEOUT_S = 1800.0
# The time that workers have to end after SIGTERM.
_GRACE_S = 5.0
# After a death, the time that the other workers have to fail by themselves, so that their output tells why.
_AFTER_DEATH_S = 2.0


class WorkerGroup:
    """Workers that stay between calls. Each runs one call after another, in its main thread.

    An exception in a call is raised where its results are asked for, and leaves the workers as they are. If a worker's
    process dies, all open calls fail with a `WorkerDiedError`, the other workers are ended, and `restart` starts all
    again. Functions, arguments and results are pickled by cloudpickle, so that functions of a script or notebook work,
    too.
    """

    def __init__(self, num_workers: int, engine: Engine | None = None) -> None:
        """Starts the workers; by default on this machine. Raises `WorkersNotStartedError`, or `WorkerDiedError`.

        After a `WorkerDiedError` the engine can start a group again.
        """
        self._engine = engine or LocalEngine()
        self._is_closed = False
        try:
            self._start = _StartedWorkers(self._engine, _checked_size(num_workers))
        except BaseException as error:
            if engine is None or not isinstance(error, WorkerDiedError):
                self._engine.close()
            raise

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def places(self) -> Sequence[RankPlace]:
        """The six numbers of each rank."""
        return self._start.team.places

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Calls the function on every worker, and does not wait for it.

        Raises `NotPicklableError`, and `WorkerError` if a worker has died or the group is closed.
        """
        return self.submit_to(range(self.size), function, *args, **kwargs)

    def submit_to(self, ranks: Sequence[int], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Calls the function on some workers, like `submit`."""
        if unknown := sorted(set(ranks) - set(range(self.size))):
            raise ValueError(f"there are no workers {unknown}: the group has {self.size}")
        if not callable(function):
            raise TypeError(f"{function!r} is not a function")
        return self._start.submit(Call(name_of(function), ranks), encode_request(function, args, kwargs))

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Calls the function on every worker, and blocks until all have finished. Returns the results in rank order.

        Ctrl-C during the wait also interrupts the functions.
        """
        call = self.submit(function, *args, **kwargs)
        try:
            return call.results()
        except KeyboardInterrupt:
            self.interrupt()
            raise

    def call_beside(self, rank: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls an importable function on the worker's node, in the process that has started it, and waits.

        That process outlives the worker; on this machine it is this one. Raises `NodeLostError`.
        """
        try:
            return self._start.team.call_beside(rank, function, *args, **kwargs)
        except WorkerLost as error:
            raise NodeLostError(f"worker {rank}") from error

    def call_in_thread(self, rank: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function in a thread of the worker, whose main thread may be in another call, and waits.

        Raises `NotPicklableError`, `WorkerFailedError`, or `WorkerError` if the worker has died or was ended.
        """
        return self._start.call_in_thread(rank, function, encode_request(function, args, kwargs))

    def hold(self) -> AbstractContextManager[object]:
        """Keeps the processes of `call_beside` alive during the block. Close the group after the block."""
        return self._start.team.hold()

    def init_torch(self, backend: str | None = None, timeout_s: float = _TORCH_TIMEOUT_S) -> None:
        """Sets up torch.distributed on all workers; by default with NCCL where they have GPUs, otherwise with Gloo.

        The system chooses the port. A call of a collective may take `timeout_s`. To be called again after `restart`.
        """
        self.submit(_torch.load_torch)
        host = self._start.team.address
        (port,) = self.submit_to([0], _torch.open_store, host).results()
        self.submit(_torch.tell_store, host, port)
        self.run(_torch.init_process_group, backend, timeout_s)

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the running functions."""
        self._start.signal(signal.SIGINT)

    def stop(self) -> None:
        """Sends SIGTERM to the workers that run a call: their `should_preempt()` becomes true.

        A worker whose function has never asked dies of it.
        """
        self._start.signal(signal.SIGTERM)

    def kill(self, grace_s: float = 0) -> None:
        """Kills all workers, by default at once. Open calls fail; `restart` starts the workers again.

        With a grace, idle workers leave by themselves, and the others get a SIGTERM first.
        """
        self._start.end("were killed", grace_s)

    def restart(self, num_workers: int | None = None) -> None:
        """Kills all workers at once, and starts as many again, or `num_workers`.

        Raises `WorkersNotStartedError`, `WorkerDiedError` if one dies meanwhile, or `WorkerError` if the group is
        closed.
        """
        if self._is_closed:
            raise WorkerError.ended("restart them", "are closed; make a new WorkerGroup")
        size = self.size if num_workers is None else _checked_size(num_workers)
        self._start.end("were started again", 0)
        self._start = _StartedWorkers(self._engine, size)

    def close(self, grace_s: float = _GRACE_S) -> None:
        """Ends all workers. Those that still run a call get a SIGTERM, and are killed after `grace_s`."""
        self._is_closed = True
        self._start.end("are closed", grace_s)
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _StartedWorkers:
    """The workers of one start, and a thread for each that gives it its calls, one after another."""

    def __init__(self, engine: Engine, num_workers: int) -> None:
        self.team: Team = engine.start(num_workers)
        self._lock = threading.Lock()
        self._end: WorkerError | None = None
        """The reason why no more calls are taken."""
        self._is_in_call = [False] * num_workers
        self._calls = [SimpleQueue[tuple[Call[Any], bytes] | None]() for _ in range(num_workers)]
        for rank in range(num_workers):
            threading.Thread(target=self._serve, args=[rank], name=f"core-sdk-worker-{rank}", daemon=True).start()

    def submit(self, call: Call[T], request: bytes) -> Call[T]:
        with self._lock:
            if self._end is not None:
                raise self._end
            for rank in call.ranks:
                self._calls[rank].put((call, request))
        return call

    def call_in_thread(self, rank: int, function: Callable[..., T], request: bytes) -> T:
        call = Call[T](name_of(function), [rank])
        self._execute(rank, call, request, in_thread=True)
        return call.results()[0]

    def signal(self, number: int) -> None:
        for rank, is_in_call in enumerate(self._is_in_call):
            if is_in_call:
                self.team.signal(rank, number)

    def end(self, reason: str, grace_s: float) -> None:
        self._close(WorkerError.ended("call them", reason))
        self.team.end(grace_s)

    def _serve(self, rank: int) -> None:
        while (given := self._calls[rank].get()) is not None:
            self._execute(rank, *given)

    def _execute(self, rank: int, call: Call[Any], request: bytes, *, in_thread: bool = False) -> None:
        """Makes a call. A call in a thread of the worker may be made while others run."""
        try:
            answer = self.team.exchange(rank, request, in_thread=True) if in_thread else self._exchange(rank, request)
        except WorkerLost:
            call.fail(rank, *self._lost(rank))
        else:
            call.take(rank, answer)

    def _exchange(self, rank: int, request: bytes) -> WorkerAnswer:
        self._is_in_call[rank] = True
        try:
            return self.team.exchange(rank, request)
        finally:
            # Cleared before the answer is delivered: its receiver may send a signal, which must not reach this worker.
            self._is_in_call[rank] = False

    def _lost(self, rank: int) -> tuple[WorkerError, RankSeen]:
        """Returns why a worker, or the whole group, has ended before the worker's answer, and what was seen of it."""
        if self._end is not None:
            return self._end, RankSeen(rank, pid=0, code=-signal.SIGKILL, ended_s=time.monotonic())
        death = self.team.death(rank)
        error = WorkerDiedError(rank, death.process, death.cause, death.last_lines)
        if self._close(error):
            threading.Thread(target=self._end_others, name="core-sdk-ending-workers", daemon=True).start()
        # The worker was not asked to end, so exit status 0 is a failure too.
        return error, replace(death.seen, code=1) if death.seen.code in WELL else death.seen

    def _close(self, error: WorkerError) -> bool:
        """Refuses further calls, because of `error`. Returns whether this is the first reason."""
        with self._lock:
            if self._end is not None:
                return False
            self._end = error
            for calls in self._calls:
                calls.put(None)
        return True

    def _end_others(self) -> None:
        deadline = time.monotonic() + _AFTER_DEATH_S
        while any(self._is_in_call) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.team.end(_GRACE_S)


def _checked_size(num_workers: int) -> int:
    if not isinstance(num_workers, int) or num_workers < 1:
        raise ValueError(f"num_workers is {num_workers!r}; a group has at least 1 worker")
    return num_workers
