"""Shows an attempt's output as it comes, in a thread of its own, so that a stalled reader holds up nothing else."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from core_sdk.cli._messages import message
from core_sdk.cli.running.follow import POLL_INTERVAL_S, Follower

_STDOUT = 1
_STDERR = 2
# A pipe takes this much at once: the count of shown bytes tells whether somebody reads.
_CHUNK_BYTES = 4096
_PATIENCE_S = 2.0


class Display:
    """Shows what comes from a descriptor, a growing file or a pipe, until `close`."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._num_shown = 0
        self._ended = threading.Event()
        self._last_words = ""
        self._thread = threading.Thread(target=self._show, name="core-sdk-display", daemon=True)
        self._thread.start()

    def close(self, last_words: str, is_hurried: Callable[[], bool]) -> None:
        """Returns when the rest and the last words are shown; once `is_hurried`, also if nobody reads any more."""
        self._last_words = last_words
        self._ended.set()
        progress, changed = -1, time.monotonic()
        while self._thread.is_alive():
            now = time.monotonic()
            if not is_hurried() or progress != self._num_shown:
                progress, changed = self._num_shown, now
            elif now - changed > _PATIENCE_S:
                return
            self._thread.join(POLL_INTERVAL_S)

    def _show(self) -> None:
        try:
            Follower(self._source, _STDOUT, self._count, _CHUNK_BYTES).copy_until(self._ended.wait)
        except OSError:
            # The reader of our output has gone (`| head`, a closed terminal), but the training goes on.
            self._ended.wait()
        # Not through `sys.stderr`: a thread that hangs in it would let the interpreter abort at its end.
        with contextlib.suppress(OSError):
            os.write(_STDERR, f"{message(self._last_words)}\n".encode(errors="backslashreplace"))

    def _count(self, chunk: bytes) -> bytes:
        self._num_shown += len(chunk)
        return chunk
