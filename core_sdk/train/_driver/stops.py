"""Forwards the signals that stop this program to its workers."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import FrameType

from core_sdk._execution.workers import WorkerGroup
from core_sdk._ground.environment import is_usr1_stop


@contextlib.contextmanager
def forwarded_stops(group: WorkerGroup) -> Iterator[list[int]]:
    """Forwards stop signals to the workers, instead of stopping this program, during the block.

    Yields a list to which each signal is appended when it comes. Does nothing outside of the main thread.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    wishes: SimpleQueue[int] = SimpleQueue()

    def catch(number: int, frame: FrameType | None) -> None:
        received.append(number)
        wishes.put(number)

    def forward() -> None:
        # In a thread of its own: the handler may run while the main thread holds a lock of the group's.
        while wishes.get():
            group.stop()

    threading.Thread(target=forward, name="core-sdk-forwarded-stops", daemon=True).start()
    numbers = [signal.SIGTERM, *([signal.SIGUSR1] if is_usr1_stop() else [])]
    previous = {number: signal.signal(number, catch) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        wishes.put(0)
