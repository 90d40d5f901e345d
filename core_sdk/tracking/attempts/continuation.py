"""From which checkpoint a trial goes on."""

from __future__ import annotations

import contextlib
import mmap
from dataclasses import dataclass
from pathlib import Path

from core_sdk.errors import CoreSDKError, MissingDependencyError, StorageError, UnknownStorageError
from core_sdk.records import CheckpointStored
from core_sdk.storage import storage_from_url
from core_sdk.tracking.history import read_history
from core_sdk.tracking.home import Home, TrialFolder


@dataclass(frozen=True)
class SkippedCheckpoint:
    storage_id: str
    reason: str


@dataclass(frozen=True)
class Continuation:
    checkpoint: CheckpointStored | None
    """None if no checkpoint can be read."""
    steps_completed: int
    """Of the trial at this checkpoint: 0 for one that another trial made."""
    skipped: tuple[SkippedCheckpoint, ...]
    """Newer than `checkpoint`, and not to be read."""


def newest_good_checkpoint(folder: TrialFolder) -> Continuation:
    """The newest checkpoint of the trial that is whole, as its storage's check finds.

    Deleted checkpoints and those behind which a later attempt went back do not count; one of which some files were
    deleted is skipped. Where the trial has none of its own, the one that it was continued from is the newest.

    Raises a `StorageError` where a storage cannot be asked, or `MissingDependencyError`: what is in it may be newer
    than all the rest, so that to go on from anything else would undo it.
    """
    skipped: list[SkippedCheckpoint] = []
    for recorded in reversed(read_history(folder).checkpoints):
        checkpoint = recorded.record
        if recorded.is_superseded:
            continue
        if (reason := _problem(checkpoint)) is None:
            return Continuation(checkpoint, checkpoint.steps_completed, tuple(skipped))
        skipped.append(SkippedCheckpoint(checkpoint.storage_id, reason))
    return _first_checkpoint(folder, skipped)


def _first_checkpoint(folder: TrialFolder, skipped: list[SkippedCheckpoint]) -> Continuation:
    storage_id = folder.read_record().continued_from
    if storage_id is None:
        return Continuation(None, 0, tuple(skipped))
    checkpoint = _find(Home(folder.home_root), storage_id)
    reason = "no trial of this home has it any more" if checkpoint is None else _problem(checkpoint)
    if reason is None:
        return Continuation(checkpoint, 0, tuple(skipped))
    return Continuation(None, 0, (*skipped, SkippedCheckpoint(storage_id, reason)))


def _find(home: Home, storage_id: str) -> CheckpointStored | None:
    """Searches the whole home: the record of a continued trial says only the checkpoint's id."""
    for trial_id in reversed(home.trial_ids()):
        folder = TrialFolder(home.root, trial_id)
        if not any(_mentions(folder.journal_path(attempt), storage_id) for attempt in folder.attempts()):
            continue
        for recorded in read_history(folder).checkpoints:
            if recorded.record.storage_id == storage_id:
                return recorded.record
    return None


def _mentions(path: Path, text: str) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text.encode()) >= 0


def _problem(checkpoint: CheckpointStored) -> str | None:
    try:
        with contextlib.closing(storage_from_url(checkpoint.storage)) as storage:
            manifest = storage.check(checkpoint.storage_id)
    except UnknownStorageError as error:
        return str(error)
    except (StorageError, MissingDependencyError):
        raise
    except (CoreSDKError, OSError, ValueError) as error:
        return str(error)
    return "some of its files were deleted" if manifest.removed else None
