"""Stops a training that may have more workers once there is room for them, so that it goes on with more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from core_sdk._execution.agent.driving import DrivenTrial
from core_sdk._runtime.workers import TrainingWorkers
from core_sdk.errors import RayClusterError
from core_sdk.train._worker.session import GROWTH


@contextlib.contextmanager
def growing(workers: TrainingWorkers, interval_s: float, trial: DrivenTrial) -> Iterator[threading.Event]:
    """Looks for room for more workers during the block, and then asks the attempt to stop.

    Yields an event that is set when the attempt was asked to stop.
    """
    is_over, is_wanted = threading.Event(), threading.Event()

    def watch() -> None:
        with contextlib.suppress(RayClusterError):  # the workers are lost with the cluster, and the attempt raises that
            while not is_over.wait(interval_s):
                if workers.can_grow():
                    is_wanted.set()
                    trial.folder.request_stop(trial.attempt, GROWTH)
                    return

    if workers.is_short:
        threading.Thread(target=watch, name="core-sdk-growth", daemon=True).start()
    try:
        yield is_wanted
    finally:
        is_over.set()
