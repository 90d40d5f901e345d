"""Threads that do many small tasks, and stop together when one fails."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from core_sdk.storage.bucket._retry import TransferCancelledError

Task = Callable[[], None]


class TransferThreads:
    """Tasks may add tasks, which come next: what was begun is ended before more is begun.

    After the first failure, or once `cancelled` is set, no more are begun. Leave it with `with`: what is still under
    way is then told to stop, and awaited.
    """

    def __init__(self, num_threads: int, cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        self._changed = threading.Condition()
        self._tasks: deque[Task] = deque()
        self._num_running = 0
        self._is_over = False
        self._error: BaseException | None = None
        self._num_threads = num_threads
        self._threads: list[threading.Thread] = []

    def add(self, task: Task) -> None:
        with self._changed:
            self._tasks.append(task)
            self._changed.notify_all()
            if len(self._threads) < self._num_threads:
                self._threads.append(threading.Thread(target=self._work, name="core-sdk-transfer", daemon=True))
                self._threads[-1].start()

    def add_next(self, *tasks: Task) -> None:
        with self._changed:
            self._tasks.extendleft(reversed(tasks))
            self._changed.notify_all()

    def wait(self) -> None:
        """Until all is done. Raises the first failure, or `TransferCancelledError`."""
        with self._changed:
            self._changed.wait_for(lambda: not self._num_running and (not self._tasks or self._cancelled.is_set()))
        if self._error is not None:
            raise self._error
        if self._cancelled.is_set():
            raise TransferCancelledError

    def _work(self) -> None:
        while (task := self._take()) is not None:
            try:
                task()
            except BaseException as error:  # noqa: BLE001  raised again by `wait`
                self._fail(error)
            finally:
                self._done()

    def _take(self) -> Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._is_over)
            if not self._tasks or self._is_over or self._cancelled.is_set():
                self._changed.notify_all()
                return None
            self._num_running += 1
            return self._tasks.popleft()

    def _done(self) -> None:
        with self._changed:
            self._num_running -= 1
            self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            # Those that follow only heed the first.
            if self._error is None and not isinstance(error, TransferCancelledError):
                self._error = error
            self._cancelled.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if exc_val is not None:
            self._cancelled.set()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
