"""Forwards the signals that stop this program to its workers."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any

from core_sdk.environment import is_usr1_stop
from core_sdk.workers import WorkerGroup


class ForwardedStops:
    """Forwards stop signals to the workers, instead of stopping this program, while it is open.

    Does nothing outside of the main thread.
    """

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self.received: int | None = None
        """The last signal that has come."""
        self._previous: dict[int, Any] = {}
        self._wishes: SimpleQueue[int] = SimpleQueue()

    def __enter__(self) -> ForwardedStops:
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._forward, name="core-sdk-forwarded-stops", daemon=True).start()
            for number in (signal.SIGTERM, *([signal.SIGUSR1] if is_usr1_stop() else [])):
                self._previous[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._previous:
            self._wishes.put(0)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._wishes.put(number)

    def _forward(self) -> None:
        # In a thread of its own: the handler may run while the main thread holds a lock of the group's.
        while self._wishes.get():
            self._group.stop()
