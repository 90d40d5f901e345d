"""Tells the master of a search which libraries a trial has imported, so that later trials find them imported."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from core_sdk._ground.files import write_atomically
from core_sdk._ground.importing import preloadable
from core_sdk._ground.typed_lines import to_line


class ImportRecorder:
    """Writes the names into a file when the Context is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(self) -> None:
        """Does nothing: most imports are still to come."""

    def close(self) -> None:
        names = preloadable(sys.modules)
        with contextlib.suppress(OSError):  # the master is gone, and with it its directory
            write_atomically(self._path, to_line(names), is_durable=False)
