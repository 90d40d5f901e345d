"""Copies of a rank's output into files, beside what is shown."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from core_sdk.processes.output._outlet import Outlet


class FileCopy:
    """A file to which text is appended: all of it, or the lines that contain one of some texts.

    Text for which there is no room is counted, as an outlet does.
    """

    def __init__(self, path: str, texts: Sequence[bytes] = ()) -> None:
        """Raises `OSError`."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._outlet = Outlet(descriptor, threading.Event())
        os.close(descriptor)
        self._texts = texts
        self._unfinished = b""

    def write(self, text: bytes) -> None:
        """Writes text. Never raises."""
        if not self._texts:
            self._outlet.write(text)
            return
        *lines, self._unfinished = (self._unfinished + text).split(b"\n")
        for line in lines:
            if any(each in line for each in self._texts):
                self._outlet.write(line + b"\n")

    def close(self) -> None:
        if self._unfinished:
            self.write(b"\n")
        self._outlet.close()
