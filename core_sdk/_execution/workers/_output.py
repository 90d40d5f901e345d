"""The output of workers, which is shown together with the program's own, also in notebooks, and kept in a file."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Literal

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._ground.ownership import give_to_owner_of
from core_sdk._machine.processes.output import PrefixedLines, Sink


class ShownOutput:
    """Shows what comes to its two sinks on `sys.stdout` and `sys.stderr`, and keeps its lines in a file."""

    def __init__(self, log_path: str | os.PathLike[str] | None = None) -> None:
        """`log_path` is a file to which the lines are appended; None if they are shown only."""
        self._lock = threading.Lock()
        self._log: KeptDescriptor | None = None
        self.log_to(log_path)
        self.stdout, self.stderr = _ShownStream("stdout", self), _ShownStream("stderr", self)

    def log_to(self, log_path: str | os.PathLike[str] | None) -> None:
        """Appends later lines to this file; None to show them only."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = None if log_path is None else KeptDescriptor(os.open(log_path, flags, 0o600))
        if log is not None and log_path is not None:
            give_to_owner_of(Path(log_path).parent, Path(log_path), log.fileno())
        with self._lock:
            last, self._log = self._log, log
            if last is not None:
                last.close()

    def keep(self, whole_lines: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # a full disk; what is shown goes on
            if self._log is not None and whole_lines:
                os.write(self._log.checked(), whole_lines)

    def close(self) -> None:
        """Keeps what is left. Does nothing the second time."""
        self.stdout.close()
        self.stderr.close()
        self.log_to(None)


class _ShownStream(Sink):
    def __init__(self, stream: Literal["stdout", "stderr"], shown: ShownOutput) -> None:
        super().__init__()
        self._stream = stream
        self._shown = shown
        self._lines = PrefixedLines(b"")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def try_write(self, text: bytes) -> int:
        self._shown.keep(self._lines.feed(text))
        # Looked up each time, since a notebook replaces the stream. It may have no reader, or be closed.
        with contextlib.suppress(OSError, ValueError):
            stream = getattr(sys, self._stream)
            stream.write(self._decoder.decode(text))
            stream.flush()
        return len(text)

    def close(self) -> None:
        self._shown.keep(self._lines.finish())
