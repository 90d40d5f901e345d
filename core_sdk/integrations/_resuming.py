"""The checkpoint from which a framework resumes."""

from __future__ import annotations

import contextlib
from pathlib import Path

from core_sdk.core import Context


class LatestCheckpoint:
    """Opens the checkpoint from which this attempt goes on, and closes it once the framework has read it."""

    def __init__(self, core_context: Context) -> None:
        self._core_context = core_context
        self._opened = contextlib.ExitStack()

    def open(self) -> Path | None:
        """Returns the verified directory of the checkpoint, or None if there is none. Collective."""
        storage_id = self._core_context.info.latest_checkpoint
        if storage_id is None:
            return None
        return self._opened.enter_context(self._core_context.checkpoint.restore_path(storage_id))

    def close(self) -> None:
        """Closes the checkpoint. Does nothing if it is not open. Collective."""
        self._opened.close()
