"""The signals that a launcher receives, and what they mean."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""They ask for an end."""
WORDS = (signal.SIGUSR1, signal.SIGUSR2)
"""Whatever they mean is between their sender and the script."""


def catch_signals(receive: Callable[[int], None]) -> None:
    """For good, and in the main thread. `receive` interrupts the thread anywhere: a `SimpleQueue.put` may do so."""

    def handle(number: int, frame: FrameType | None) -> None:
        receive(number)

    # A parent that ignored its children's ends would leave us without the ends of ours.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (*STOPS, *WORDS):
        # What is ignored already (`nohup`, a job in the background) stays so, for the ranks as well.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)
