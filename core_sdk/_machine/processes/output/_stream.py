"""The reading end of one pipe of a rank, or of another host."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._machine.processes.output._outlet import FileCopy, Sink
from core_sdk._machine.processes.output._prefixed_lines import PrefixedLines

TAIL_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16
_PIPE_BYTES = 1 << 18
# An unfinished line after which nothing follows for this long is a prompt, or dots.
_UNFINISHED_S = 0.2
# A longer one is probably still being written. It is shown when its writer pauses for longer.
_LONG_BYTES = 1 << 12
_LONG_UNFINISHED_S = 1.0

_TRACEBACK = b"Traceback (most recent call last)"
# Torch's exception hook and exception groups put text before it.
_TRACEBACK_LINE = re.compile(rb"[\r\n](?:\[rank\d+\]: )?(?: *\+ Exception Group )?" + re.escape(_TRACEBACK))
_MAX_LINE_START_BYTES = 128


class Stream:
    """A pipe, read by the forwarding thread. Other threads may read `tail` and `traceback_time`."""

    def __init__(self, path: Path, lines: PrefixedLines, sink: Sink, copies: Sequence[FileCopy] = ()) -> None:
        self.is_ended = False
        """Whether the pipe is at its end, and all its content has been written."""
        self.traceback_time: float | None = None
        """The `time.monotonic()` at which the first line of the last Python traceback came."""
        self._path = path
        self._sink = sink
        self._lines = lines
        self._copies = copies
        self._read_at = 0.0
        self._held_since: float | None = None
        self._last = bytearray()
        self._line_start = b"\n"
        os.mkfifo(path, 0o600)
        # Opening does not wait for a writer. The pipe gets ready when the first one writes, or the last one closes it.
        self._pipe = KeptDescriptor(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        # A larger pipe keeps a rank from waiting for us at each burst. macOS lacks this; Linux may refuse it.
        with contextlib.suppress(OSError, AttributeError):
            fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def fileno(self) -> int:
        return self._pipe.fileno()

    @property
    def tail(self) -> bytes:
        """The last part of what came, unchanged: the end of a rank's stderr tells why it died."""
        return bytes(self._last)[-TAIL_BYTES:]

    @property
    def show_at(self) -> float:
        """The time at which to show an unfinished line, if nothing comes before then."""
        if self._held_since is None:
            return math.inf
        if self._lines.num_held_bytes > _LONG_BYTES:
            return self._read_at + _LONG_UNFINISHED_S
        return self._held_since + _UNFINISHED_S

    def forward(self) -> bool:
        """Forwards the next chunk, if there is one. Returns False at the pipe's end."""
        try:
            chunk = os.read(self._pipe.checked(), _CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:  # the script has closed it
            return False
        if chunk:
            self._note_last(chunk)
            for copy in self._copies:
                copy.write(chunk)
            text = self._lines.feed(chunk)
            self._read_at = time.monotonic()
            if text or self._held_since is None:
                self._held_since = self._read_at if self._lines.num_held_bytes else None
            self._sink.write(text, self._lines)
        return bool(chunk)

    def forward_rest(self) -> None:
        """Forwards the content of the pipe, but not the later output of processes that a rank left behind."""
        for _ in range(_PIPE_BYTES // _CHUNK_BYTES + 1):
            if not self.forward():
                break

    def show_unfinished(self) -> None:
        self._sink.write(self._lines.flush(), self._lines)
        self._held_since = None

    def close(self) -> None:
        self._sink.write(self._lines.finish(), self._lines)
        for copy in self._copies:
            copy.close()
        self._pipe.close()
        self._path.unlink(missing_ok=True)

    def _note_last(self, chunk: bytes) -> None:
        self._last += chunk
        if len(self._last) > 2 * TAIL_BYTES:
            del self._last[:-TAIL_BYTES]
        window = self._line_start + chunk
        # A traceback's first line that comes in several chunks counts once.
        if any(match.end() > len(self._line_start) for match in _TRACEBACK_LINE.finditer(window)):
            self.traceback_time = time.monotonic()
        self._line_start = window[-_MAX_LINE_START_BYTES:]
