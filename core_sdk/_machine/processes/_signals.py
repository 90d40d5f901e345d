"""The signals that this process receives, as values that a thread can wait for."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""The signals that ask for an end. SIGHUP does not: a terminal that is closed leaves the training running."""
USER_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals whose meaning is up to their sender and the script."""

_RING = b"\0"


class CaughtSignals:
    """Catches signals from construction on, for good. Constructed by the main thread.

    With `is_usr1_stop` SIGUSR1 comes as a SIGTERM. Signals come as bytes through a pipe, to which the interpreter's C
    handler writes. A Python handler would run late if the signal came just before its thread falls asleep in a wait.
    """

    def __init__(self, *, is_usr1_stop: bool = False) -> None:
        self.is_stop_asked = threading.Event()
        """Is set by `wait` when a signal asks for an end."""
        self._is_usr1_stop = is_usr1_stop
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        # If our parent ignored SIGCHLD, we would inherit that, and never see our children's exit statuses.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*STOPS, signal.SIGHUP, *USER_SIGNALS):
            # A signal that is ignored already (`nohup`, a job in the background) stays ignored, for the ranks as well.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _do_nothing)

    @staticmethod
    def ignore() -> None:
        """Ignores signals from now on, since the outcome is known. Python's own end would let them end this process."""
        for number in (*STOPS, signal.SIGHUP, *USER_SIGNALS):
            signal.signal(number, signal.SIG_IGN)

    def ring(self) -> None:
        """Ends a `wait`. Any thread may call it."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, and wakes anyway
            os.write(self._write, _RING)

    def wait(self, timeout_s: float | None) -> int | None:
        """Blocks until a signal comes, and returns it. Returns 0 after a `ring`, and None after the time-out."""
        ready, _, _ = select.select([self._read], [], [], timeout_s)
        number = os.read(self._read, 1)[0] if ready else None
        number = signal.SIGTERM if self._is_usr1_stop and number == signal.SIGUSR1 else number
        if number in STOPS:
            self.is_stop_asked.set()
        return number

    def wait_for(self, work: Callable[[], object]) -> None:
        """Does `work` in a thread, while this thread receives signals and sets `is_stop_asked`. Blocks."""
        future = ThreadPoolExecutor(1).submit(work)
        future.add_done_callback(lambda _: self.ring())
        while not future.done():
            self.wait(None)
        future.result()


def heed_signals() -> None:
    """Undoes what the starter of this process has ignored or blocked, for this process and those that it starts.

    A shell ignores SIGINT for a command in the background, and `nohup` SIGHUP. For the main thread.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (*STOPS, signal.SIGHUP, signal.SIGCHLD, *USER_SIGNALS):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def start_helper(arguments: Sequence[str | Path], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a Python program in a session of its own. Its output is dropped. The options go to `Popen`.

    All signals are blocked in it, since Slurm and service managers send theirs to every process.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        command = [sys.executable, *arguments]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def outlive_stops() -> None:
    """Lets this process, a helper, outlive the signals that ask for an end, while what it starts heeds them.

    For the main thread, before it starts another one.
    """
    for number in (*STOPS, signal.SIGHUP, *USER_SIGNALS):
        signal.signal(number, _do_nothing)  # a handler, unlike a mask, is not inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def block_usr1() -> None:
    """Blocks SIGUSR1 in the processes that this thread starts, and in theirs.

    Slurm signals every process of a step, and a process without a handler, such as a data-loader worker, would die of
    it. The launcher receives it all the same and asks the ranks to stop. A rank can wait for it with `sigwait`.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Takes a signal. One is only written to the pipe of `CaughtSignals` if it has a handler."""
