"""The output of workers, which is shown together with the program's own, also in notebooks, and kept in a file."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import threading
from typing import Literal

from core_sdk.processes.output import PrefixedLines

_CHUNK_BYTES = 1 << 16


class ShownOutput:
    """Shows lines, which come whole to its descriptors, on `sys.stdout` and `sys.stderr`, and keeps them in a file."""

    def __init__(self, log_path: str | os.PathLike[str] | None = None) -> None:
        """`log_path` is a file to which the lines are appended; None if they are shown only."""
        self._log = _Log()
        self._log.turn_to(log_path)
        self._stdout, self._stderr = _Copy("stdout", self._log), _Copy("stderr", self._log)

    @property
    def stdout_fd(self) -> int:
        return self._stdout.descriptor

    @property
    def stderr_fd(self) -> int:
        return self._stderr.descriptor

    def log_to(self, log_path: str | os.PathLike[str] | None) -> None:
        """Appends later lines to this file; None to show them only."""
        self._log.turn_to(log_path)

    def close(self) -> None:
        """Shows what is left. Does nothing the second time."""
        self._stdout.close()
        self._stderr.close()
        self._log.turn_to(None)


class _Log:
    """The file that keeps the lines, if any. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def turn_to(self, path: str | os.PathLike[str] | None) -> None:
        descriptor = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with self._lock:
            last, self._descriptor = self._descriptor, descriptor
            if last is not None:
                os.close(last)

    def write(self, whole_lines: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # a full disk; what is shown goes on
            if self._descriptor is not None and whole_lines:
                os.write(self._descriptor, whole_lines)


class _Copy:
    """A pipe, and a thread that shows what comes through it."""

    def __init__(self, stream: Literal["stdout", "stderr"], log: _Log) -> None:
        self._read, self.descriptor = os.pipe()
        self._stream = stream
        self._log = log
        self._thread = threading.Thread(target=self._run, name=f"core-sdk-worker-{stream}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Shows what is left."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self._thread.join()
            os.close(self._read)

    def _run(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        lines = PrefixedLines(b"")
        while chunk := os.read(self._read, _CHUNK_BYTES):
            self._log.write(lines.feed(chunk))
            self._show(decoder.decode(chunk))
        self._log.write(lines.finish())

    def _show(self, text: str) -> None:
        # Looked up each time, since a notebook replaces the stream. It may have no reader, or be closed.
        with contextlib.suppress(OSError, ValueError):
            stream = getattr(sys, self._stream)
            stream.write(text)
            stream.flush()
