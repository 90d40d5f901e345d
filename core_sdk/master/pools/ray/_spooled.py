"""An attempt on a node that does not see the home."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import ray

from core_sdk.alive import AliveLock
from core_sdk.errors import CoreSDKError, HomeError, NodeLostError
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.slots import Slots
from core_sdk.tracking.attempts.running import await_end
from core_sdk.tracking.attempts.starting import AttemptStart
from core_sdk.tracking.spool.shipment import Shipment

P = ParamSpec("P")
T = TypeVar("T")

_LAST_MOMENT_S = 10.0


class SpooledAttempt:
    """An attempt that is claimed beside the master, and whose records are brought to the home while it runs.

    This process holds the attempt's lock in the home from the claim until all records have arrived. The trial counts as
    running for that time. If this process is killed, the attempt goes on, and the driver of the next master takes the
    lock again. A log in the home, even an empty one, says that the node has got all files that the attempt needs.
    """

    def __init__(self, order: AttemptOrder) -> None:
        self._order = order
        self._folder = order.folder
        self._whose = f"trial {order.trial_id}"
        self._start: AttemptStart | None = None
        self._lock: AliveLock | None = None
        self._claiming = threading.Lock()
        self._is_withdrawn = False

    def claim(self, slots: Slots) -> int | str:
        """Claims the attempt. Returns its number, or in words what has prevented it."""
        try:
            start = self._order.claim(slots)
        except (CoreSDKError, OSError) as error:
            return str(error)
        with self._claiming:
            if self._is_withdrawn:
                start.withdraw()
            else:
                self._start, self._lock = start, start.lock
        return start.number

    def follow(self, actor: Any, number: int) -> str:
        """Starts the attempt on the actor's node unless it was started. Returns when all its records are in the home.

        Returns in words why the attempt could not be started, or an empty string. Raises `NodeLostError` if the actor
        or its node dies. Raises `OSError` if a disk cannot be written to, or if another process holds the lock: the
        caller then has to call again.
        """
        if self._lock is None:
            await_end(self._folder, _LAST_MOMENT_S)  # a driver that was killed may take a moment to die
            self._lock = AliveLock(self._folder.supervised_path(number))
        try:
            problem = self._follow(actor, number)
        except NodeLostError:
            raise
        except HomeError as error:
            raise OSError(str(error)) from error
        except CoreSDKError as error:
            problem = str(error)
        self.release()
        return problem

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

    def _follow(self, actor: Any, number: int) -> str:
        shipment = Shipment(_ActorNodeCalls(actor, self._whose), self._folder, number)
        log = self._folder.log_path(number)
        if not log.exists():
            shipment.fit_out(self._order.submission().files())
            log.touch(mode=0o600)
        try:
            problem: str = ray.get(actor.start_in_spool.remote(shipment.root, number))
        except ray.exceptions.RayError as error:
            raise NodeLostError(self._whose) from error
        shipment.follow(shipment.is_running)
        shipment.finish()
        return problem


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
