"""A function call on workers, and its results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from core_sdk._execution.workers._engine import WorkerAnswer
from core_sdk._execution.workers._messages import decode_failure, decode_value
from core_sdk._machine.processes import Failed, RankSeen, judge
from core_sdk.errors import CallTimeoutError, WorkerError

T = TypeVar("T")

# The time for which a failure that looks like a consequence waits for its cause.
_PATIENCE_S = 2.0


class Call(Generic[T]):
    """A call on some workers. Iterating gives `(rank, value)` of each worker, in the order in which they finish.

    If the function fails on one worker, asking for results raises that error, whatever the other workers do. If several
    fail, the failure that caused the others is raised. Any thread may ask for results; one thread iterates.
    """

    def __init__(self, function: str, ranks: Sequence[int]) -> None:
        self.function = function
        """Its name, for messages."""
        self.ranks = tuple(ranks)
        self._changed = threading.Condition()
        self._contents: dict[int, bytes] = {}
        self._failures: dict[int, tuple[WorkerError, RankSeen]] = {}
        self._failed_s = 0.0
        self._num_given = 0

    def __iter__(self) -> Iterator[tuple[int, T]]:
        while self._num_given < len(self.ranks):
            yield self.next()

    def is_done(self) -> bool:
        """Returns whether every worker has answered, or one has failed. Does not block."""
        with self._changed:
            return bool(self._failures) or len(self._contents) == len(self.ranks)

    def next(self, timeout_s: float | None = None) -> tuple[int, T]:
        """Blocks until the next worker has finished. Returns its rank, and what the function has returned there.

        Raises `WorkerFailedError`, `WorkerDiedError` or `CallTimeoutError`, and `StopIteration` after the last one.
        """
        if self._num_given == len(self.ranks):
            raise StopIteration(f"all workers have answered {self.function}")
        index = self._num_given
        self._wait_for(index + 1, timeout_s)
        self._num_given += 1
        rank = list(self._contents)[index]
        return rank, decode_value(self.function, rank, self._contents[rank])

    def results(self, timeout_s: float | None = None) -> list[T]:
        """Blocks until all workers have finished. Returns what the function has returned, in the order of the ranks.

        Raises `WorkerFailedError`, `WorkerDiedError` or `CallTimeoutError`.
        """
        self._wait_for(len(self.ranks), timeout_s)
        return [decode_value(self.function, rank, self._contents[rank]) for rank in self.ranks]

    def wait_for_all(self, timeout_s: float) -> bool:
        """Blocks until every worker has answered or failed. Returns False after `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._missing(), timeout_s)

    def take(self, rank: int, answer: WorkerAnswer) -> None:
        """Takes the answer of a rank. For each rank, either this or `fail` is called once."""
        if answer.is_failure:
            error = decode_failure(self.function, rank, answer.content)
            now = time.monotonic()
            text = error.traceback_text.encode(errors="replace")
            self.fail(rank, error, RankSeen(rank, pid=0, code=1, ended_s=now, traceback_s=now, stderr=text))
            return
        with self._changed:
            self._contents[rank] = answer.content
            self._changed.notify_all()

    def fail(self, rank: int, error: WorkerError, seen: RankSeen) -> None:
        """Notes why a rank gives no value, and what was seen of it: by that it is judged which rank failed first."""
        with self._changed:
            self._failed_s = self._failed_s or time.monotonic()
            self._failures[rank] = error, seen
            self._changed.notify_all()

    def _wait_for(self, num_values: int, timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while True:
                if (error := self._first_failure()) is not None:
                    raise error
                if not self._failures and len(self._contents) >= num_values:
                    return
                if not self._changed.wait(self._time_left_s(deadline)) and _is_over(deadline):
                    raise CallTimeoutError(self.function, timeout_s or 0, self._missing())

    def _first_failure(self) -> WorkerError | None:
        """Returns the first failure. Returns None if there is none, or while its cause may still come."""
        if not self._failures:
            return None
        has_patience = bool(self._missing()) and time.monotonic() < self._failed_s + _PATIENCE_S
        running = [RankSeen(rank, pid=0) for rank in self._missing()]
        outcome = judge([seen for _, seen in self._failures.values()] + running, (), has_patience=has_patience)
        if isinstance(outcome, Failed):
            return self._failures[outcome.first.rank][0]
        return None if has_patience else next(error for error, _ in self._failures.values())

    def _missing(self) -> list[int]:
        return [rank for rank in self.ranks if rank not in self._contents and rank not in self._failures]

    def _time_left_s(self, deadline: float | None) -> float | None:
        ends = [end for end in (deadline, self._failed_s + _PATIENCE_S if self._failures else None) if end is not None]
        return max(0.0, min(ends) - time.monotonic()) if ends else None


def _is_over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline
