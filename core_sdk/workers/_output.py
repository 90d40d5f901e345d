"""What workers write: shown where the program's own output goes, also in a notebook's cell, and kept in a file."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Literal

from core_sdk.processes.output import PrefixedLines, RankOutput

_CHUNK_BYTES = 1 << 16


class WorkerOutput(RankOutput):
    """Workers write into its pipes. Each line is shown, with its rank, by `sys.stdout` or `sys.stderr`."""

    def __init__(self, directory: Path, log_path: str | os.PathLike[str] | None = None) -> None:
        """`log_path` is a file to which the lines are appended as well."""
        self._log = None if log_path is None else os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stdout, stderr = self._copies = (_Copy("stdout", self._log), _Copy("stderr", self._log))
        super().__init__(directory, stdout.descriptor, stderr.descriptor)

    def close(self) -> None:
        """Does nothing the second time."""
        super().close()
        for copy in self._copies:
            copy.close()
        if self._log is not None:
            os.close(self._log)
            self._log = None


class _Copy:
    """A pipe, and a thread that shows what comes through it."""

    def __init__(self, stream: Literal["stdout", "stderr"], log: int | None) -> None:
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
            self._keep(lines.feed(chunk))
            self._show(decoder.decode(chunk))
        self._keep(lines.finish())

    def _keep(self, whole_lines: bytes) -> None:
        if self._log is not None and whole_lines:
            with contextlib.suppress(OSError):  # a full disk; what is shown goes on
                os.write(self._log, whole_lines)

    def _show(self, text: str) -> None:
        # The stream of this moment: a notebook has its own. Nobody may read it any more, or it may be closed.
        with contextlib.suppress(OSError, ValueError):
            stream = getattr(sys, self._stream)
            stream.write(text)
            stream.flush()
