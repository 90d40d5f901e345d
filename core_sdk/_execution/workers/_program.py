"""The program of a worker: it runs one call after another in its main thread, and keeps state between them."""

from __future__ import annotations

import os
import signal
import traceback
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from core_sdk._execution.workers._engine import WorkerAnswer
from core_sdk._execution.workers._messages import decode_request, encode_failure, encode_value
from core_sdk._ground.environment import RankPlace
from core_sdk._machine.processes import exit_at_once


@dataclass(frozen=True)
class ThisWorker:
    """The worker in which a function runs."""

    place: RankPlace
    state: dict[str, Any] = field(default_factory=dict)
    """The objects that one call leaves to the next ones, such as a model."""

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def size(self) -> int:
        return self.place.size


# A process is a worker for all its life.
_this_worker: ThisWorker | None = None


def this_worker() -> ThisWorker:
    """Returns the worker in which the calling function runs. Raises `RuntimeError` in other processes."""
    if _this_worker is None:
        raise RuntimeError("this process is not a worker: call this_worker() in a function that a WorkerGroup runs")
    return _this_worker


class WorkerProgram:
    """Runs the calls of a worker. There is one in each worker's process, in the main thread."""

    def __init__(self, place: RankPlace) -> None:
        global _this_worker
        _this_worker = ThisWorker(place)
        self._pid = os.getpid()
        self._is_in_call = False
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, _ignore)

    def answer(self, request: bytes, *, in_thread: bool = False) -> WorkerAnswer:
        """Runs a call and returns its answer. Any exception is an answer, even `KeyboardInterrupt` and `SystemExit`.

        Calls `in_thread` leave the handling of signals to the main thread.
        """
        try:
            function, args, kwargs = decode_request(request)
            if in_thread:
                return WorkerAnswer(is_failure=False, content=encode_value(function(*args, **kwargs)))
            self._begin_call()
            try:
                value = function(*args, **kwargs)
            finally:
                self._end_call()
            if os.getpid() != self._pid:
                exit_at_once()
            return WorkerAnswer(is_failure=False, content=encode_value(value))
        except BaseException as error:  # noqa: BLE001 - it is raised by the program that calls
            if os.getpid() != self._pid:
                exit_at_once(_status(error))
            return encode_failure(_from_function(error))

    def _begin_call(self) -> None:
        _replace_sigterm_handler(_ignore, signal.SIG_DFL)
        self._is_in_call = True

    def _end_call(self) -> None:
        self._is_in_call = False
        _replace_sigterm_handler(signal.SIG_DFL, _ignore)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handles Ctrl-C, which ends the running call but never the worker."""
        if self._is_in_call:
            raise KeyboardInterrupt


def _status(error: BaseException) -> int:
    """Returns the exit status of a process that a function has forked, and that leaves the function by this error."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
    elif error.code is None or isinstance(error.code, int):
        return error.code or 0
    return 1


def _replace_sigterm_handler(ours: Any, new: Any) -> None:
    """Replaces the handler of SIGTERM if it is ours. A handler that the function has set stays."""
    if signal.getsignal(signal.SIGTERM) == ours:
        signal.signal(signal.SIGTERM, new)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignores a stop that comes when its call has just ended.

    It is a handler rather than `SIG_IGN`, which processes that the worker starts would inherit.
    """


def _from_function(error: BaseException) -> BaseException:
    """Returns the error without our own line in its traceback."""
    trace = error.__traceback__
    return error.with_traceback(trace.tb_next) if trace is not None and trace.tb_next is not None else error
