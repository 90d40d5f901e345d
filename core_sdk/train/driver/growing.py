"""Stops a training that may have more workers once there is room for them, so that it goes on with more."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Self

from core_sdk.agent.driving import DrivenTrial
from core_sdk.errors import RayClusterError
from core_sdk.train._configs import ScalingConfig
from core_sdk.workers import Engine

_SOURCE = "room for more workers"
# The time that a cluster may take to free the places of workers that have ended.
_RELEASE_S = 5.0
_POLL_S = 0.1


def num_workers(scaling: ScalingConfig, num_available: int | None) -> int:
    """Returns the number of workers that there is room for, but at least the smallest allowed number. Pure."""
    room = scaling.max_workers if num_available is None else num_available
    return max(scaling.min_workers, min(scaling.max_workers, room))


def room_for(scaling: ScalingConfig, engine: Engine, last_size: int) -> int:
    """Returns the number of workers to start now.

    Blocks for a few seconds while the engine still holds the places of the `last_size` workers that have just ended.
    """
    deadline = time.monotonic() + _RELEASE_S
    while (room := num_workers(scaling, engine.num_available())) < last_size and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return room


class Growth:
    """Looks for room for more workers while it is open, and then asks the attempt to stop."""

    def __init__(self, scaling: ScalingConfig, engine: Engine, size: int, trial: DrivenTrial) -> None:
        self._scaling = scaling
        self._engine = engine
        self._size = size
        self._trial = trial
        self._is_over = threading.Event()
        self.is_wanted = False
        """Whether the attempt was asked to stop, to go on with more workers."""

    def __enter__(self) -> Self:
        if self._size < self._scaling.max_workers:
            threading.Thread(target=self._watch, name="core-sdk-growth", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        with contextlib.suppress(RayClusterError):  # the workers are lost with the cluster, and the attempt raises that
            while not self._is_over.wait(self._scaling.elastic_resize_monitor_interval_s):
                if num_workers(self._scaling, self._engine.num_available()) > self._size:
                    self.is_wanted = True
                    self._trial.folder.request_stop(self._trial.attempt, _SOURCE)
                    return
