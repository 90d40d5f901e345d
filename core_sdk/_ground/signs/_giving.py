"""The signs of life of this process, if it is a rank beside which an agent looks at them."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from core_sdk._ground.signs._collectives import answer_questions, ask
from core_sdk._ground.signs._layout import AT, BUSY_SINCE, COUNT, HAS_ENDED, PID, SIZE_BYTES, STACKS_SUFFIX, SUFFIX

SIGNAL = signal.SIGRTMIN + 9
"""It makes a rank, and what it has forked, write the Python stacks of all threads, also while a lock is held in C."""


def _nothing() -> None:
    pass


class SignsOfLife:
    """Gives the signs. A process has one training at a time; without an agent its signs go nowhere."""

    beat: ClassVar[Callable[[], None]] = staticmethod(_nothing)
    """Gives a sign, in less than a microsecond."""
    _numbers: ClassVar[memoryview[float] | None] = None
    _process: ClassVar[int | None] = None

    def __init__(self, directory: Path, rank: int) -> None:
        """Begins to give signs as this rank. A second training of the process goes on with the file of the first."""
        self._path = directory / f"{rank}{SUFFIX}"
        self._stacks: int | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        with contextlib.suppress(OSError):  # the agent has ended: nobody looks
            path = self._path
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(descriptor, SIZE_BYTES)
                numbers = memoryview(mmap.mmap(descriptor, SIZE_BYTES)).cast("d")
            finally:
                os.close(descriptor)
            numbers[COUNT], numbers[AT], numbers[BUSY_SINCE], numbers[HAS_ENDED] = 0.0, 0.0, 0.0, 0.0
            numbers[PID] = float(os.getpid())
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._stacks = os.open(path.with_suffix(STACKS_SUFFIX), flags, 0o600)
            faulthandler.register(SIGNAL, self._stacks, all_threads=True)
            SignsOfLife._numbers, SignsOfLife._process = numbers, os.getpid()
            SignsOfLife.beat = staticmethod(_beat_in(numbers))
            asked = [path, self._closing.is_set]
            threading.Thread(target=answer_questions, args=asked, name="core-sdk-signs", daemon=True).start()

    def close(self) -> None:
        if self._stacks is None or SignsOfLife._numbers is None or SignsOfLife._process != os.getpid():
            return
        SignsOfLife._numbers[HAS_ENDED] = 1.0
        SignsOfLife.beat, SignsOfLife._numbers = staticmethod(_nothing), None
        faulthandler.unregister(SIGNAL)
        os.close(self._stacks)
        self._stacks = None
        self._closing.set()
        ask(self._path)  # lets the thread end

    @classmethod
    @contextlib.contextmanager
    def busy(cls) -> Iterator[None]:
        """Says that the block is no step: a validation, or a save."""
        numbers = cls._numbers
        if numbers is None or numbers[BUSY_SINCE]:
            yield
            return
        numbers[BUSY_SINCE] = time.monotonic()
        try:
            yield
        finally:
            numbers[BUSY_SINCE] = 0.0
            cls.beat()


def _beat_in(numbers: memoryview[float]) -> Callable[[], None]:
    def beat(numbers: memoryview[float] = numbers, now: Callable[[], float] = time.monotonic) -> None:
        numbers[COUNT] += 1.0
        numbers[AT] = now()

    return beat
