"""Checkpoints that are copies of a framework's own files, and are deleted after those files."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_sdk.core import Context
from core_sdk.errors import CoreSDKError

logger = logging.getLogger("core_sdk.integrations")

_NO_FILE = ""
_TRIAL_ID, _COPY_OF, _OTHER_COPIES = "trial_id", "copy_of", "other_copies"


class Copies:
    """A list of the trial's checkpoints that are copies of the framework's files. Only the chief uses it.

    The newest checkpoint always stays, since a resume goes on from it. The list is part of each checkpoint's metadata,
    so that the next attempt has it.
    """

    def __init__(self, core_context: Context) -> None:
        self._core_context = core_context
        self._trial_id = core_context.info.trial.trial_id
        self._newest = core_context.info.latest_checkpoint
        self._kept: str | None = None
        self._removed: set[str] = set()
        metadata = {} if self._newest is None else core_context.checkpoint.get_metadata(self._newest)
        is_own = _COPY_OF in metadata and metadata.get(_TRIAL_ID) == self._trial_id
        self._copies = _existing(metadata, self._newest or "") if is_own else {}

    def metadata(self, steps_completed: int, path: Path | None) -> dict[str, Any]:
        """Returns the metadata for a checkpoint that is a copy of `path`; None if the framework has no file of it."""
        copy_of = _NO_FILE if path is None else str(path)
        return {
            "steps_completed": steps_completed,
            _TRIAL_ID: self._trial_id,
            _COPY_OF: copy_of,
            _OTHER_COPIES: {path: storage_id for path, storage_id in self._copies.items() if path != copy_of},
        }

    def add(self, path: Path, storage_id: str) -> None:
        """Notes that the newest checkpoint, `storage_id`, is a copy of `path`, and earlier copies of it are not."""
        self._newest = storage_id
        self._forget(_NO_FILE)
        self._forget(str(path))
        if storage_id != self._kept:
            self._copies[str(path)] = storage_id
        self._release()

    def keep(self, storage_id: str) -> None:
        """Notes that the newest checkpoint, `storage_id`, is a copy of a file that the framework never deletes."""
        self._newest = self._kept = storage_id
        self._copies = {path: each for path, each in self._copies.items() if each != storage_id}
        self._forget(_NO_FILE)
        self._release()

    def remove(self, path: Path) -> None:
        """Notes that the framework has deleted `path`."""
        self._forget(str(path))
        self._release()

    def remove_missing(self) -> None:
        """Notes that the framework has deleted the files that are missing."""
        for path in [path for path in self._copies if path != _NO_FILE and not Path(path).exists()]:
            self._forget(path)
        self._release()

    def _forget(self, path: str) -> None:
        if (storage_id := self._copies.pop(path, None)) is not None:
            self._removed.add(storage_id)

    def _release(self) -> None:
        """Deletes the checkpoints whose files are all gone. If one cannot be deleted now, it is tried again later."""
        for storage_id in self._removed - {self._newest, *self._copies.values()}:
            try:
                self._core_context.checkpoint.release(storage_id)
            except (CoreSDKError, OSError) as error:
                logger.warning("checkpoint %s could not be deleted: %s", storage_id, error)
            else:
                self._removed.discard(storage_id)


def _existing(metadata: Mapping[str, Any], storage_id: str) -> dict[str, str]:
    """Returns the copies in the list of the newest checkpoint, `storage_id`, whose files are on this machine."""
    copies = {metadata[_COPY_OF]: storage_id, **metadata[_OTHER_COPIES]}
    return {path: each for path, each in copies.items() if path == _NO_FILE or Path(path).exists()}
