"""The workers of a training, as the program sees them that has started them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from core_sdk._execution.workers import Call, Engine, WorkerGroup
from core_sdk.errors import WorkerDiedError, WorkerFailedError, WorkersNotStartedError

logger = logging.getLogger("core_sdk.runtime")

P = ParamSpec("P")
T = TypeVar("T")

# The time that workers have to end a call by themselves: the others after one has failed, and all after Ctrl-C.
_AFTER_FAILURE_S = 0.5
_AFTER_INTERRUPT_S = 5.0
# A cluster takes a moment to free the places of workers that have ended, and to give them to others that wait.
_RELEASE_S = 5.0
_SETTLING_S = 1.0
_POLL_S = 0.1


class TrainingWorkers:
    """Workers with torch.distributed, which stay from call to call until a death or `end()`."""

    group: WorkerGroup
    """The workers of the last start."""

    def __init__(self, engine: Engine, least: int, most: int, *, backend: str, timeout_s: float = 1800.0) -> None:
        """Starts none yet. Later at most `most` are started, and at least `least`, even with less room for them.

        With 0 as `least`, none are started where there is none.
        """
        self.engine = engine
        self._least = least
        self._most = most
        self._backend = backend
        self._timeout_s = timeout_s
        self._last_size = 0
        self.are_ended = True
        """Whether `start()` must come next."""

    @property
    def size(self) -> int:
        return 0 if self.are_ended else self.group.size

    def start(self, num_workers: int | None = None, *, num_tries: int = 1) -> None:
        """Ends the workers, and starts `num_workers`, or as many as there is room for.

        Blocks for a few seconds while the engine still holds the places of the last workers. If there is no room, tries
        again after 1, 2, 4, … seconds. Raises `WorkersNotStartedError` after the last try, or `WorkerDiedError` if a
        worker dies meanwhile.
        """
        self.end()
        for number in range(num_tries):
            if number > 0:
                logger.warning("there is no room for workers; looking again in %d s", wait_s := 2 ** (number - 1))
                time.sleep(wait_s)
            if (size := num_workers or self._room_after_release()) > 0:
                try:
                    self._start(size)
                    return
                except WorkersNotStartedError as error:
                    if number == num_tries - 1:
                        raise
                    logger.warning("%s", error)
        raise WorkersNotStartedError(1, f"there was no room for any in {num_tries} tries")

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Calls the function on every worker, and blocks until all have finished, as `results()` does."""
        return self.results(self.group.submit(function, *args, **kwargs))

    def results(self, call: Call[T]) -> list[T]:
        """Blocks until all workers have finished the call. Returns its results in the order of the ranks.

        Ctrl-C also interrupts the workers. After that, and after the error of one worker, the others have a moment to
        end the call by themselves.
        """
        try:
            return call.results()
        except KeyboardInterrupt:
            self.group.interrupt()
            call.wait_for_all(_AFTER_INTERRUPT_S)
            raise
        except WorkerFailedError:
            call.wait_for_all(_AFTER_FAILURE_S)
            raise
        except WorkerDiedError:
            self.are_ended = True
            raise

    @property
    def is_short(self) -> bool:
        """Whether fewer workers were started than are wanted."""
        return self.group.size < self._most

    def can_grow(self) -> bool:
        """Returns whether fewer workers were started than are wanted, and there is room for more."""
        return self.is_short and self._room() > self.group.size

    def end(self, grace_s: float = 0) -> None:
        """Kills the workers, also after an error of one: another one may wait for it. Idle ones may have a grace."""
        self.are_ended = True
        if self._last_size > 0:
            self.group.kill(grace_s)

    def close(self, *, is_forced: bool) -> None:
        """Ends the workers, with `is_forced` at once. They cannot be started again."""
        self.are_ended = True
        if self._last_size == 0:
            self.engine.close()
        elif is_forced:
            self.group.close(0)
        else:
            self.group.close()

    def _start(self, size: int) -> None:
        if self._last_size == 0:
            self.group = WorkerGroup(size, self.engine)
        else:
            self.group.restart(size)
        self._last_size = size
        self.group.init_torch(self._backend, self._timeout_s)
        self.are_ended = False

    def _room_after_release(self) -> int:
        if self._last_size > 0 and self.engine.num_available() is not None:
            time.sleep(_SETTLING_S)
        deadline = time.monotonic() + _RELEASE_S
        while (room := self._room()) < self._last_size and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return room

    def _room(self) -> int:
        return num_workers(self._least, self._most, self.engine.num_available())


def num_workers(least: int, most: int, num_available: int | None) -> int:
    """Returns the number of workers that there is room for, but at least `least`. Pure."""
    return max(least, most if num_available is None else min(most, num_available))
