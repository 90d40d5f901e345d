"""Storing checkpoints together with the records that say that they exist."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

from core_sdk._ground.records import (
    CheckpointBegun,
    CheckpointCondemned,
    CheckpointDeleted,
    CheckpointStored,
    Manifest,
    Record,
)
from core_sdk._home.journal import Journal
from core_sdk._home.storage import METADATA_NAME, Storage
from core_sdk.core._checkpoint._metadata import STEPS
from core_sdk.errors import CheckpointError, CheckpointNotFoundError, CheckpointNotStoredError

logger = logging.getLogger("core_sdk.checkpoint")


class Holdup:
    """For how long a save holds the training up: from its construction until `end`, or until it is recorded."""

    def __init__(self) -> None:
        self._begun_at = time.monotonic()
        self._ended_at: float | None = None

    def begin(self) -> None:
        self._begun_at, self._ended_at = time.monotonic(), None

    def end(self) -> None:
        """Notes that the training goes on, with what the checkpoint does not hold."""
        self._ended_at = time.monotonic()

    def note(self, record: CheckpointStored) -> None:
        now = time.monotonic()
        ended_at = now if self._ended_at is None else self._ended_at
        record.saving_s = round(ended_at - self._begun_at, 3)
        record.behind_s = None if self._ended_at is None else round(now - ended_at, 3)


class Recorder:
    """Records what is stored in one storage: a checkpoint without its record is withdrawn."""

    def __init__(self, storage: Storage, journal: Journal, storage_name: str, holdup: Holdup) -> None:
        self._storage = storage
        self.holdup = holdup
        self._storage_name = storage_name
        self._journal = journal

    def store(self, storage_id: str, commit: Callable[[], Manifest]) -> None:
        """Calls `commit`, which stores the checkpoint, and records it; or raises, and nothing of it stays.

        Raises the errors of `commit`, and `CheckpointNotStoredError` if the journal cannot be written.
        """
        # With this record, collection finds a checkpoint that a kill leaves complete but unrecorded.
        self._append(storage_id, CheckpointBegun(time=time.time(), storage_id=storage_id, storage=self._storage_name))
        is_committed = False
        try:
            manifest = commit()
            is_committed = True
            self._append(storage_id, self._stored(manifest))
        except BaseException as error:
            # A commit that failed has withdrawn the checkpoint; one that was interrupted may have been at its end.
            if is_committed or not isinstance(error, Exception):
                self._withdraw(storage_id)
            raise
        if manifest.files.keys() <= {METADATA_NAME}:
            logger.warning(
                "checkpoint %s has metadata and no file. If files were meant, what writes them had not begun at the "
                "end of the block: wait for what dcp.async_save() returns, by result()",
                storage_id,
            )

    def _stored(self, manifest: Manifest) -> CheckpointStored:
        record = CheckpointStored(
            time=time.time(),
            storage_id=manifest.storage_id,
            storage=self._storage_name,
            steps_completed=manifest.metadata[STEPS],
            metadata=manifest.metadata,
            resources=manifest.resources,
        )
        self.holdup.note(record)
        return record

    def _append(self, storage_id: str, record: Record) -> None:
        try:
            self._journal.append_or_raise(record)
        except OSError as error:
            reason = f"its record cannot be written to {self._journal.path}: {error}"
            raise CheckpointNotStoredError(storage_id, self._storage.url, reason) from error

    def _withdraw(self, storage_id: str) -> None:
        # An interrupt may have come when the record was written: this one keeps it from being listed.
        with contextlib.suppress(OSError):
            self._journal.append_or_raise(CheckpointCondemned(time=time.time(), storage_id=storage_id))
        try:
            with contextlib.suppress(CheckpointNotFoundError):
                self._storage.delete(storage_id)
        except (CheckpointError, OSError) as error:
            logger.error(
                "checkpoint %s, whose save failed, stays in %s: %s. It is not listed; the next collection removes it",
                storage_id,
                self._storage.url,
                error,
            )
            return
        with contextlib.suppress(OSError):
            self._journal.append_or_raise(CheckpointDeleted(time=time.time(), storage_id=storage_id))
