"""Pins, verifies and deletes checkpoints, and changes their metadata.

Every verb raises `CheckpointNotFoundError` for an unknown one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_sdk._execution.steering.checks import checked_keys, checked_metadata, checked_text
from core_sdk._execution.steering.verb import changing, verb
from core_sdk._ground.records import CheckpointMetadataSet, CheckpointPinned, CheckpointUnpinned
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.folders import with_reserve
from core_sdk._home.history import check_listed
from core_sdk._home.rows import CheckpointRow


@verb("checkpoint", "pin", "pinned checkpoint {storage_id}")
def pin(home: Home, storage_id: str, note: str = "") -> None:
    """Protects the checkpoint from being deleted, by collection or by hand. The note says why."""
    folder = _folder(home, storage_id)
    record = CheckpointPinned(time=time.time(), storage_id=storage_id, note=checked_text("the note", note))
    folder.append_change(record, lambda: check_listed(folder, storage_id))


@verb("checkpoint", "unpin", "unpinned checkpoint {storage_id}")
def unpin(home: Home, storage_id: str) -> bool:
    """Removes the pin, and returns whether there was one."""
    row = _row(home, storage_id)
    home.trial(row.trial_id).append_change(CheckpointUnpinned(time=time.time(), storage_id=storage_id))
    return row.is_pinned


@changing("checkpoint")
def add_metadata(home: Home, storage_id: str, metadata: Mapping[str, Any]) -> None:
    """Adds or replaces keys of the recorded metadata. The stored files do not change. Raises `TypeError`."""
    folder = _folder(home, storage_id)
    folder.append_change(
        CheckpointMetadataSet(time=time.time(), storage_id=storage_id, metadata=checked_metadata(metadata))
    )


@changing("checkpoint")
def remove_metadata(home: Home, storage_id: str, keys: Iterable[str]) -> None:
    """Removes keys of the recorded metadata. Keys that it does not have are ignored. Raises `TypeError`."""
    folder = _folder(home, storage_id)
    folder.append_change(CheckpointMetadataSet(time=time.time(), storage_id=storage_id, removed=checked_keys(keys)))


@verb("checkpoint", "verify", "checkpoint {storage_id} is whole: every byte is as it was stored", only_reads=True)
def verify(home: Home, storage_id: str) -> None:
    """Reads every stored file. Raises `CheckpointDamagedError` naming the bad file.

    A `StorageError` means that the checkpoint could not be read. It may still be intact.
    """
    from core_sdk._home.storage import storage_from_url  # which the other verbs do not need

    with contextlib.closing(storage_from_url(_row(home, storage_id).storage)) as storage:
        storage.verify(storage_id)


@verb("checkpoint", "delete", "deleted checkpoint {storage_id}")
def delete(home: Home, storage_id: str, *, force: bool = False) -> None:
    """Deletes the files, if they are still there, and marks the checkpoint as deleted.

    Raises `CheckpointProtectedError` for a checkpoint that is pinned, that a trial began with, that a running attempt
    uses, or that is a version of a model; `force` overrides the first two. Raises a `StorageError` if the storage
    cannot be reached.
    """
    from core_sdk._home.deletion import delete_checkpoint

    row = _row(home, storage_id)
    folder = home.trial(row.trial_id)
    with_reserve(home.root, lambda: delete_checkpoint(folder, row.storage, storage_id, is_forced=force))


@changing("checkpoint")
def delete_files(home: Home, storage_id: str, globs: Sequence[str], *, force: bool = False) -> None:
    """Deletes the files and directories that `globs` match ("optimizer", "*.pt", "**/*.tmp").

    The other files stay readable, but no trial resumes from them. If no file is left, the checkpoint is deleted. Raises
    the errors of `delete`.
    """
    from core_sdk._home.deletion import delete_files

    row = _row(home, storage_id)
    folder = home.trial(row.trial_id)
    with_reserve(home.root, lambda: delete_files(folder, row.storage, storage_id, globs, is_forced=force))


def _row(home: Home, storage_id: str) -> CheckpointRow:
    with open_view(home) as view:
        return view.checkpoint(storage_id)


def _folder(home: Home, storage_id: str) -> TrialFolder:
    return home.trial(_row(home, storage_id).trial_id)
