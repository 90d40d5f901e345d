"""The workers of a trainer, whose number shrinks after a death and grows again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from core_sdk._execution.workers import Engine, named_as
from core_sdk._ground.records import Keep
from core_sdk._runtime.workers import TrainingWorkers
from core_sdk.sgd._creators import Creators
from core_sdk.sgd._runner import OnRunner, Restored, Runner, create

logger = logging.getLogger("core_sdk.sgd")

P = ParamSpec("P")
T = TypeVar("T")

# A start after a death waits for room, for 17 minutes in all.
_NUM_TRIES = 11


class Replicas(TrainingWorkers):
    """The workers of a trainer, at most `num_wanted`, each with a `Runner`."""

    def __init__(self, engine: Engine, num_wanted: int, creators: Creators, backend: str) -> None:
        """Starts all that are wanted. Raises `WorkersNotStartedError`, or `WorkerFailedError` of a creator."""
        super().__init__(engine, 0, num_wanted, backend=backend)
        self._num_wanted = num_wanted
        self._creators = creators
        try:
            self.start(num_wanted)
            self._set_up()
        except BaseException:
            self.close(is_forced=True)
            raise

    def call(self, function: Callable[Concatenate[Runner, P], T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        """Calls the function with the runner of each worker."""
        return self.run(OnRunner(function), *args, **kwargs)

    def hold_state(self) -> Callable[[], bytes]:
        """Copies the state of the training in the memory of worker 0. Returns a function that reads the copy.

        It works in any thread, also during other calls, until the next copy is made.
        """
        random_states = self.call(Runner.hold_state)
        return partial(self.group.call_in_thread, 0, OnRunner(Runner.held_state), random_states)

    def start_from(self, state: bytes, keep: Keep = "all") -> Restored:
        """Starts as many workers as there is room for, which go on from the state, or from a part of it.

        Blocks while there is no room for any. Raises `WorkersNotStartedError` after the last try.
        """
        self.start(num_tries=_NUM_TRIES)
        logger.warning("%d of %d workers go on from the last good state", self.size, self._num_wanted)
        self._set_up()
        return self.call(Runner.read_state, state, keep)[0]

    def _set_up(self) -> None:
        with named_as("what the trainer was given", vars(self._creators)):
            self.run(create, self._creators)
        self.call(Runner.set_up)
