"""The signals that a launcher receives, and what they mean."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""They ask for an end."""
WORDS = (signal.SIGUSR1, signal.SIGUSR2)
"""Whatever they mean is between their sender and the script."""

_RING = b"\0"


class CaughtSignals:
    """Caught from construction on, for good, by the main thread. With `is_usr1_stop` SIGUSR1 comes as a SIGTERM.

    They come as bytes through a pipe, which the interpreter's innermost handler writes: Python's own handlers may
    wait, if the signal meets the thread a moment before it falls asleep, for as long as it sleeps.
    """

    def __init__(self, *, is_usr1_stop: bool = False) -> None:
        self.is_stop_asked = threading.Event()
        """Set by `wait`."""
        self._is_usr1_stop = is_usr1_stop
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # A parent that ignored its children's ends would leave us without the ends of ours.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*STOPS, *WORDS):
            # What is ignored already (`nohup`, a job in the background) stays so, for the ranks as well.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _leave_to_the_pipe)

    def ring(self) -> None:
        """Ends a `wait`; for any thread."""
        with contextlib.suppress(BlockingIOError):  # then there is more than enough to wake up for
            os.write(self._write, _RING)

    def wait(self, timeout_s: float | None) -> int | None:
        """The next signal; 0 for a `ring`, None for the end of the time."""
        ready, _, _ = select.select([self._read], [], [], timeout_s)
        number = os.read(self._read, 1)[0] if ready else None
        number = signal.SIGTERM if self._is_usr1_stop and number == signal.SIGUSR1 else number
        if number in STOPS:
            self.is_stop_asked.set()
        return number

    def wait_for(self, work: Callable[[], object]) -> None:
        """Does `work`, which may wait for others until `is_stop_asked`."""
        future = ThreadPoolExecutor(1).submit(work)
        future.add_done_callback(lambda _: self.ring())
        while not future.done():
            self.wait(None)
        future.result()


def block_usr1() -> None:
    """In processes that this thread starts, and in theirs.

    Slurm signals every process of a step, and what has no handler, a data-loader worker, would die of it. The launcher
    hears it all the same, and asks the ranks to stop; a rank that wants to hear it waits for it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def _leave_to_the_pipe(number: int, frame: FrameType | None) -> None:
    """Catching a signal needs a handler."""
