"""Threads that do many small tasks, and stop together when one fails."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from core_sdk._home.storage.bucket._retry import TransferCancelledError

Task = Callable[[], "Iterable[Task] | None"]
"""May return tasks that are run next, before tasks that have not begun."""


def run_in_threads(tasks: Iterable[Task], num_threads: int, cancelled: threading.Event) -> None:
    """Runs all tasks, and blocks until they have ended. Raises the first failure, or `TransferCancelledError`.

    After a failure, `cancelled` is set. Once it is set, no more tasks are begun, and running tasks should stop.
    """
    pool = _Pool(tasks, cancelled)
    # The standard library's pool would keep a process from exiting after it has given up a transfer.
    threads = [threading.Thread(target=pool.work, name="core-sdk-transfer", daemon=True) for _ in range(num_threads)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        cancelled.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        raise
    if pool.failure is not None:
        raise pool.failure
    if cancelled.is_set():
        raise TransferCancelledError


class _Pool:
    def __init__(self, tasks: Iterable[Task], cancelled: threading.Event) -> None:
        self.failure: BaseException | None = None
        self._tasks = deque(tasks)
        self._num_running = 0
        self._changed = threading.Condition()
        self._cancelled = cancelled

    def work(self) -> None:
        while (task := self._next()) is not None:
            following: list[Task] = []
            try:
                following = list(task() or ())
            except BaseException as error:  # noqa: BLE001  raised again by `run_in_threads`
                # Tasks that were told to stop fail too; that is not the first failure.
                if self.failure is None and not isinstance(error, TransferCancelledError):
                    self.failure = error
                self._cancelled.set()
            finally:
                with self._changed:
                    self._tasks.extendleft(reversed(following))
                    self._num_running -= 1
                    self._changed.notify_all()

    def _next(self) -> Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or not self._num_running)
            if not self._tasks or self._cancelled.is_set():
                return None
            self._num_running += 1
            return self._tasks.popleft()
