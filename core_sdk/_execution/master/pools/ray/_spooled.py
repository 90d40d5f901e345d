"""An attempt on a node that does not see the home."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import ray

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.master.pools.ray._actor import NodeEnd
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.ownership import make_directory
from core_sdk._home.attempts.running import await_end
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk._home.spool.shipment import Shipment
from core_sdk._machine.slots import Slots
from core_sdk.errors import CoreSDKError, HomeError, NodeLostError

P = ParamSpec("P")
T = TypeVar("T")

_LAST_MOMENT_S = 10.0


class SpooledAttempt:
    """An attempt that another process than the master claims, and whose records come to the home while it runs.

    This process holds the attempt's lock in the home from the claim until all records have arrived. The trial counts as
    running for that time. If this process is killed, the attempt goes on, and the driver of the next master takes the
    lock again. A log in the home, even an empty one, says that its node has got all files that the attempt needs.
    """

    def __init__(self, order: AttemptOrder) -> None:
        self._order = order
        self._folder = order.folder
        self._whose = f"trial {order.trial_id}"
        self._start: AttemptStart | None = None
        self._lock: AliveLock | None = None
        self._claiming = threading.Lock()
        self._is_withdrawn = False

    def claim(self, slots: Slots, addresses: Sequence[str]) -> int | str:
        """Claims the attempt on nodes with these slots each. Returns its number, or in words what has prevented it."""
        try:
            start = self._order.claim(slots).on_nodes(addresses)
        except (CoreSDKError, OSError) as error:
            return str(error)
        with self._claiming:
            if self._is_withdrawn:
                start.withdraw()
            else:
                self._start, self._lock = start, start.lock
        return start.number

    def follow(self, actors: Sequence[Any], node: int, number: int) -> NodeEnd:
        """Starts the attempt on one of its nodes unless it was started there.

        Returns when it has ended on the node, and all its records of the node are in the home. Raises `NodeLostError`
        if the node's actor or the node dies. Raises `OSError` if a disk cannot be written to, or if another process
        holds the lock: the caller then has to call again.
        """
        self._take_lock(number)
        try:
            return self._follow(actors, node, number)
        except NodeLostError:
            raise
        except HomeError as error:
            raise OSError(str(error)) from error
        except CoreSDKError as error:
            return NodeEnd(str(error))

    def withdraw(self) -> None:
        """Takes back the attempt, which was not started. If it is being claimed, that is done after the claim."""
        with self._claiming:
            self._is_withdrawn = True
            if self._start is not None:
                self._start.withdraw()
                self._start = self._lock = None

    def release(self) -> None:
        """Releases the attempt's lock, so that the trial no longer counts as running."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take_lock(self, number: int) -> None:
        with self._claiming:
            if self._lock is None:
                await_end(self._folder, _LAST_MOMENT_S)  # a driver that was killed may take a moment to die
                self._lock = AliveLock(self._folder.supervised_path(number))

    def _follow(self, actors: Sequence[Any], node: int, number: int) -> NodeEnd:
        actor, is_first = actors[node], node == 0
        shipment = Shipment(_ActorNodeCalls(actor, self._whose), self._folder, number, is_first=is_first)
        log = self._folder.of_node(node).log_path(number)
        if not log.exists():
            shipment.fit_out(self._order.submission().files())
            make_directory(log.parent, exist_ok=True)
            log.touch(mode=0o600)
        ended = actor.run.remote(shipment.root, number, actors[1:] if is_first else ())
        shipment.follow(lambda: not ray.wait([ended], timeout=0)[0])
        try:
            end: NodeEnd = ray.get(ended)
        except ray.exceptions.RayError as error:
            raise NodeLostError(self._whose) from error
        if is_first:
            shipment.finish()
        else:
            shipment.forget()
        return end


class _ActorNodeCalls:
    """Calls functions on the node of an actor, in the actor's process."""

    def __init__(self, actor: Any, whose: str) -> None:
        self._actor = actor
        self._whose = whose

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result: T = ray.get(self._actor.call.remote(function, args, kwargs))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise NodeLostError(self._whose) from error
        return result
