"""Finds the checkpoint from which a trial goes on."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from core_sdk._ground.records import CheckpointStored, Report, Setback
from core_sdk._home.attempts.setbacks import setback_before
from core_sdk._home.checkpoints import RecordedCheckpoint
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.history import read_history
from core_sdk._home.journal import find_records
from core_sdk._home.storage import storage_from_url
from core_sdk.errors import (
    CheckpointNotFoundError,
    CoreSDKError,
    MissingDependencyError,
    StorageError,
    UnknownStorageError,
)

if TYPE_CHECKING:
    from core_sdk._home.rows import TrialState

_MOST_REASON_CHARS = 300


class SkippedCheckpoint(msgspec.Struct, frozen=True):
    storage_id: str
    reason: str


class Continuation(msgspec.Struct, frozen=True):
    checkpoint: CheckpointStored | None
    """None if no checkpoint can be read."""
    steps_completed: int
    """The trial's steps at this checkpoint: 0 for a checkpoint of another trial."""
    skipped: tuple[SkippedCheckpoint, ...]
    """Checkpoints that are newer than `checkpoint`, and cannot be read."""
    setback: Setback | None = None
    """What a guard has decided about going on from here."""

    @property
    def storage_id(self) -> str | None:
        return None if self.checkpoint is None else self.checkpoint.storage_id


def newest_good_checkpoint(folder: TrialFolder) -> Continuation:
    """Returns the newest checkpoint of the trial that passes its storage's check.

    Deleted and superseded checkpoints do not count, nor do those that were stored in trouble. A checkpoint with some
    files deleted is skipped. A trial without a good checkpoint of its own goes on from the one with which it began.

    Raises `StorageError` or `MissingDependencyError` if a storage cannot be asked: its checkpoints may be newer than
    all others, and going on from an older one would undo them.
    """
    skipped: list[SkippedCheckpoint] = []
    history = read_history(folder)
    for recorded in reversed(history.checkpoints):
        checkpoint = recorded.record
        if recorded.is_superseded:
            continue
        if (reason := _problem(checkpoint)) is None:
            setback = setback_before(history.troubles, recorded.attempt)
            return Continuation(checkpoint, checkpoint.steps_completed, tuple(skipped), setback)
        skipped.append(SkippedCheckpoint(checkpoint.storage_id, reason))
    return replace(_first_checkpoint(folder, skipped), setback=setback_before(history.troubles, 0))


def has_checkpoint(folder: TrialFolder) -> bool:
    """Returns whether the records name a checkpoint from which the trial goes on. Asks no storage."""
    checkpoints = read_history(folder).checkpoints
    return folder.read_record().continued_from is not None or any(not each.is_superseded for each in checkpoints)


def has_reports(folder: TrialFolder, attempt: int) -> bool:
    """Returns whether an attempt has reported metrics."""
    return any(isinstance(found, Report) for found in find_records(folder.journal_path(attempt), ['"report"']))


def chosen_checkpoint(folder: TrialFolder, storage_id: str) -> Continuation:
    """Returns this checkpoint, for a new trial that continues the trial of `folder`.

    If the checkpoint cannot be read, the reason is in `skipped`. Raises `CheckpointNotFoundError`.
    """
    checkpoint = find_checkpoint(Home(folder.home_root), folder, storage_id)
    if checkpoint is None:
        raise CheckpointNotFoundError(storage_id, f"the home {folder.home_root}")
    if (reason := _problem(checkpoint)) is not None:
        return Continuation(None, 0, (SkippedCheckpoint(storage_id, reason),))
    return Continuation(checkpoint, checkpoint.steps_completed, ())


def _first_checkpoint(folder: TrialFolder, skipped: list[SkippedCheckpoint]) -> Continuation:
    storage_id = folder.read_record().continued_from
    if storage_id is None:
        return Continuation(None, 0, tuple(skipped))
    checkpoint = find_checkpoint(Home(folder.home_root), folder, storage_id)
    reason = "no trial of this home has it any more" if checkpoint is None else _problem(checkpoint)
    if reason is None:
        return Continuation(checkpoint, 0, tuple(skipped))
    return Continuation(None, 0, (*skipped, SkippedCheckpoint(storage_id, reason)))


def find_checkpoint(home: Home, folder: TrialFolder, storage_id: str) -> CheckpointStored | None:
    """Returns the record of a checkpoint from which the trial of `folder` goes on, or None if it was deleted."""
    recorded = find_recorded(home, folder, storage_id)
    return None if recorded is None else recorded.record


def find_recorded(home: Home, folder: TrialFolder, storage_id: str) -> RecordedCheckpoint | None:
    """Returns the checkpoint as the home's records have it, or None if it was deleted.

    Searches all trials, first the trial of `folder`: the record of a continued trial has only the checkpoint's id.
    """
    others = (TrialFolder(home.root, trial_id) for trial_id in reversed(home.trial_ids()))
    for each in itertools.chain([folder], others):
        with contextlib.suppress(PermissionError):  # another user's trial, which cannot be asked
            for recorded in read_history(each).checkpoints:
                if recorded.record.storage_id == storage_id:
                    return recorded
    return None


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


def describe_end(folder: TrialFolder, state: TrialState, reason: str) -> str:
    """Says how the trial has ended, with the beginning of a long reason.

    The text continues a sentence that begins with its name.
    """
    shown = reason if len(reason) <= _MOST_REASON_CHARS else f"{reason[:_MOST_REASON_CHARS]}…"
    because = f" ({shown})" if reason else ""
    if state == "COMPLETED":
        return f"completed{because}"
    words = {"PAUSED": "is paused", "CANCELED": "was canceled"}.get(state, "failed")
    return f"{words}{because}: {what_resume_does(folder)}"


def what_resume_does(folder: TrialFolder) -> str:
    """Says what a resume would do with the trial. The text continues a sentence about the trial."""
    resume = f"`core-sdk trial resume {folder.trial_id}`"
    if has_checkpoint(folder):
        return f"{resume} goes on with it"
    if has_reports(folder, max(folder.attempts())):
        return f"it has no checkpoint, so that {resume} begins from nothing and hides what it has reported"
    return f"{resume} starts it again"


def what_is_hidden(folder: TrialFolder, attempt: int) -> str:
    """Says that the reports of `attempt` are superseded when the trial begins from nothing; empty if it has none."""
    if not has_reports(folder, attempt):
        return ""
    shown = f"`core-sdk trial metrics {folder.trial_id} --superseded` still shows it"
    return f", and what it has reported is superseded; {shown}"
