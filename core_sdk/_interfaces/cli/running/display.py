"""Shows an attempt's output as it comes, in a thread of its own, so that a stalled reader holds up nothing else."""

from __future__ import annotations

import os
import threading

from core_sdk._interfaces.cli._messages import message
from core_sdk._machine.processes.output import Outlet

_STDOUT = 1
_STDERR = 2
_POLL_INTERVAL_S = 0.05
_CHUNK_BYTES = 1 << 16
_PATIENCE_S = 2.0


class Display:
    """Shows what comes from a descriptor, a growing file or a pipe, until `close`.

    A reader that takes nothing is waited for; once `is_hurried` is set, for some seconds only. A reader that leaves
    (`| head`, a closed terminal) does not end the display: the training goes on.
    """

    def __init__(self, source: int, is_hurried: threading.Event) -> None:
        self._source = source
        self._is_hurried = is_hurried
        self._ended = threading.Event()
        self._last_words = ""
        self._thread = threading.Thread(target=self._show, name="core-sdk-display", daemon=True)
        self._thread.start()

    def close(self, last_words: str) -> None:
        """Blocks until the rest and `last_words` have been shown, or the reader has left."""
        self._last_words = last_words
        self._ended.set()
        self._thread.join()

    def _show(self) -> None:
        screen = Outlet(_STDOUT, self._is_hurried, _PATIENCE_S)
        is_last = False
        while not is_last:
            # Asked before copying, so that what was written before the end is copied.
            is_last = self._ended.wait(_POLL_INTERVAL_S)
            while chunk := os.read(self._source, _CHUNK_BYTES):
                screen.write(chunk)
        say_or_drop(self._last_words, self._is_hurried)


def say_or_drop(words: str, is_hurried: threading.Event) -> None:
    """Prints one line for people. Once `is_hurried` is set, drops it if nobody reads it for some seconds."""
    Outlet(_STDERR, is_hurried, _PATIENCE_S).write(f"{message(words)}\n".encode(errors="backslashreplace"))
