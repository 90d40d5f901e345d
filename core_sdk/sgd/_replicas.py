"""The workers of a trainer, whose number shrinks after a death and grows again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from core_sdk.errors import WorkerDiedError, WorkersNotStartedError
from core_sdk.loop.keeping import Keep
from core_sdk.sgd import _runner
from core_sdk.sgd._creators import Creators
from core_sdk.workers import Engine, WorkerGroup, named_as

logger = logging.getLogger("core_sdk.sgd")

P = ParamSpec("P")
T = TypeVar("T")

NUM_TRIES = 10
"""The number of tries to start workers again. The waits between them double, beginning with one second."""

# Ray takes a moment to notice the resources that the workers have freed.
_SETTLING_S = 1.0


class Replicas:
    """The workers of a trainer, at most `num_wanted`, each with a `Runner`."""

    def __init__(self, engine: Engine, num_wanted: int, creators: Creators, backend: str) -> None:
        self._engine = engine
        self._num_wanted = num_wanted
        self._creators = creators
        self._backend = backend
        self._group = WorkerGroup(num_wanted, engine)
        self.are_ended = False
        """Whether a death or `end()` has ended them, so that `restart()` must come next."""
        try:
            self._set_up()
        except BaseException:
            self._group.kill()
            self._group.close()
            raise

    @property
    def size(self) -> int:
        return self._group.size

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        try:
            return self._group.run(function, *args, **kwargs)
        except WorkerDiedError:
            self.are_ended = True
            raise

    def read_state(self) -> bytes:
        """Returns the state of worker 0, with the random states of all workers."""
        random_states = self.run(_runner.random_state)
        return next(state for state in self.run(_runner.write_state, random_states) if state is not None)

    def can_grow(self) -> bool:
        """Returns whether there is room for more workers, and fewer run than are wanted."""
        return self.size < self._num_wanted and self._num_possible() > self.size

    def restart(self, state: bytes, keep: Keep = "all") -> None:
        """Starts as many workers as there is room for, which go on from the state, or from a part of it.

        Blocks while there is no room for any. Raises `WorkersNotStartedError` after the last try.
        """
        self.end()
        if self._engine.num_available() is not None:
            time.sleep(_SETTLING_S)
        for attempt in range(NUM_TRIES):
            if (num_workers := self._num_possible()) > 0:
                try:
                    self._group.restart(num_workers)
                    break
                except WorkersNotStartedError as error:
                    logger.warning("%s", error)
            wait_s = 2**attempt
            logger.warning("there is no room for workers; looking again in %d s", wait_s)
            time.sleep(wait_s)
        else:
            raise WorkersNotStartedError(1, f"there was no room for any in {NUM_TRIES} tries")
        logger.warning("%d of %d workers go on from the last good state", self.size, self._num_wanted)
        self._set_up()
        self.run(_runner.read_state, state, keep)
        self.are_ended = False

    def end(self) -> None:
        """Kills the workers, also after an error in a pass: one may wait for another that has left the pass."""
        self.are_ended = True
        self._group.kill()

    def close(self, *, is_forced: bool) -> None:
        if is_forced:
            self._group.kill()
        self._group.close()

    def _num_possible(self) -> int:
        available = self._engine.num_available()
        return self._num_wanted if available is None else min(available, self._num_wanted)

    def _set_up(self) -> None:
        with named_as("what the trainer was given", vars(self._creators)):
            self.run(_runner.create, self._creators)
        if self.size > 1:
            self._group.init_torch(self._backend)
        self.run(_runner.set_up)
