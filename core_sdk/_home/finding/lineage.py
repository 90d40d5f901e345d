"""The way of a checkpoint: the attempts that led to it, each with its code and the checkpoint from which it went on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from core_sdk._ground.records import AttemptStarted
from core_sdk._home import View
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.journal import find_records
from core_sdk.errors import CheckpointNotFoundError, CoreSDKError

MAX_STRETCHES = 100


@dataclass(frozen=True)
class Stretch:
    """An attempt's way from the checkpoint with which it began to the one that it stored."""

    storage_id: str
    """The checkpoint at its end."""
    trial_id: int | None
    """The trial that stored the checkpoint; None if nothing is known of it any more, and all other fields are empty."""
    trial_name: str = ""
    experiment_id: int = 0
    experiment_name: str = ""
    attempt: int = 0
    first_steps: int = 0
    """The step from which the attempt went on; 0 at the beginning of a trial."""
    steps_completed: int = 0
    time: float = 0.0
    is_deleted: bool = False
    git_commit: str = ""
    git_is_dirty: bool | None = None
    code: str | None = None
    """The SHA-256 of the code with which its experiment was submitted."""


def read_lineage(view: View, home: Home, storage_id: str) -> list[Stretch]:
    """Returns the stretches that led to a checkpoint, the last one first, at most `MAX_STRETCHES`.

    Raises `CheckpointNotFoundError` for a checkpoint that the home does not know.
    """
    view.checkpoint(storage_id)
    found: dict[str, Stretch] = {}
    following: str | None = storage_id
    while following is not None and following not in found and len(found) < MAX_STRETCHES:
        found[following], following = _stretch(view, home, following)
    return list(found.values())


def _stretch(view: View, home: Home, storage_id: str) -> tuple[Stretch, str | None]:
    """Returns the stretch that ends with a checkpoint, and the checkpoint with which it began."""
    try:
        row = view.checkpoint(storage_id)
        trial = view.trial(row.trial_id)
    except CheckpointNotFoundError:
        return Stretch(storage_id, None), None
    folder = home.folder(row.trial_id)
    started, environment, code = _start(folder, row.attempt), None, None
    with contextlib.suppress(CoreSDKError, OSError):  # what cannot be read is left out
        environment = folder.read_environment(row.attempt)
    with contextlib.suppress(CoreSDKError, OSError):
        code = home.experiment(row.experiment_id).read_submission().code
    stretch = Stretch(
        storage_id=storage_id,
        trial_id=row.trial_id,
        trial_name=trial.name,
        experiment_id=row.experiment_id,
        experiment_name=trial.experiment_name,
        attempt=row.attempt,
        first_steps=0 if started is None else started.resumed_steps,
        steps_completed=row.steps_completed,
        time=row.time,
        is_deleted=row.state == "DELETED",
        git_commit=environment.git_commit if environment else "",
        git_is_dirty=environment.git_is_dirty if environment else None,
        code=code,
    )
    return stretch, None if started is None else started.latest_checkpoint


def _start(folder: TrialFolder, attempt: int) -> AttemptStarted | None:
    records = find_records(folder.journal_path(attempt), ['"attempt"'])
    return next((record for record in records if isinstance(record, AttemptStarted)), None)
