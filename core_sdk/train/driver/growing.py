"""Stops a training that may have more workers once there is room for them, so that it goes on with more."""

from __future__ import annotations

import contextlib
import threading
from types import TracebackType
from typing import Self

from core_sdk.agent.driving import DrivenTrial
from core_sdk.errors import RayClusterError
from core_sdk.runtime.workers import TrainingWorkers

_SOURCE = "room for more workers"


class Growth:
    """Looks for room for more workers while it is open, and then asks the attempt to stop."""

    def __init__(self, workers: TrainingWorkers, interval_s: float, trial: DrivenTrial) -> None:
        self._workers = workers
        self._interval_s = interval_s
        self._trial = trial
        self._is_over = threading.Event()
        self.is_wanted = False
        """Whether the attempt was asked to stop, to go on with more workers."""

    def __enter__(self) -> Self:
        if self._workers.is_short:
            threading.Thread(target=self._watch, name="core-sdk-growth", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        with contextlib.suppress(RayClusterError):  # the workers are lost with the cluster, and the attempt raises that
            while not self._is_over.wait(self._interval_s):
                if self._workers.can_grow():
                    self.is_wanted = True
                    self._trial.folder.request_stop(self._trial.attempt, _SOURCE)
                    return
