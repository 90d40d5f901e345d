"""The launcher's end of one pipe of a rank, or of another host."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from pathlib import Path

from core_sdk.processes.output._last_words import LastWords
from core_sdk.processes.output._prefixed_lines import PrefixedLines
from core_sdk.processes.output._sink import Sink

_CHUNK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 18
# An unfinished line is a prompt, or dots, if nothing follows for so long.
_UNFINISHED_S = 0.2
# What is longer is rather a line in the middle of being written, and shown only when its writer rests for long.
_LONG_BYTES = 1 << 12
_LONG_UNFINISHED_S = 1.0


class Stream:
    """Used by the forwarding thread; `last_words` may be asked by others."""

    def __init__(self, path: Path, lines: PrefixedLines, sink: Sink) -> None:
        self.last_words = LastWords()
        self.is_ended = False
        """Also: what came before the end has been written."""
        self._path = path
        self._sink = sink
        self._lines = lines
        self._read_at = 0.0
        self._held_since: float | None = None
        os.mkfifo(path, 0o600)
        # Does not wait for a writer. Not ready to be read before the first one comes, at its end after the last one.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        # So that a rank need not wait for us at each burst. The system may refuse it to a user of many pipes.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def fileno(self) -> int:
        return self._descriptor

    @property
    def show_at(self) -> float:
        """The time when the line that nobody has ended yet is to be shown, if nothing comes before."""
        if self._held_since is None:
            return math.inf
        if self._lines.num_held_bytes > _LONG_BYTES:
            return self._read_at + _LONG_UNFINISHED_S
        return self._held_since + _UNFINISHED_S

    def forward(self) -> bool:
        """Passes on the next chunk, if there is one. False at the pipe's end."""
        try:
            chunk = os.read(self._descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if chunk:
            self._pass_on(chunk)
        return bool(chunk)

    def forward_rest(self) -> None:
        """What is in the pipe now, and not what processes that a rank left behind go on to write."""
        for _ in range(fcntl.fcntl(self._descriptor, fcntl.F_GETPIPE_SZ) // _CHUNK_BYTES + 1):
            if not self.forward():
                break

    def show_unfinished(self) -> None:
        self._sink.write(self._lines.flush(), self._lines)
        self._held_since = None

    def close(self) -> None:
        self._sink.write(self._lines.finish(), self._lines)
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)

    def _pass_on(self, chunk: bytes) -> None:
        self.last_words.feed(chunk)
        text = self._lines.feed(chunk)
        self._read_at = time.monotonic()
        if text or self._held_since is None:
            self._held_since = self._read_at if self._lines.num_held_bytes else None
        self._sink.write(text, self._lines)
