"""Deleting, with everything that belongs to what is deleted. Ids are never used again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from core_sdk.errors import CheckpointNotFoundError, TrialNotFoundError, TrialRunningError
from core_sdk.records import CheckpointDeleted
from core_sdk.storage import storage_from_url
from core_sdk.tracking._checkpoints import recorded_checkpoints
from core_sdk.tracking.claim import claimed_next_attempt
from core_sdk.tracking.home import Home, TrialFolder


def delete_checkpoint(folder: TrialFolder, storage_url: str, storage_id: str) -> None:
    """Deletes the files, where they are still there, and records that the trial's checkpoint is gone."""
    with contextlib.suppress(CheckpointNotFoundError):
        storage_from_url(storage_url).delete(storage_id)
    folder.append_change(CheckpointDeleted(time=time.time(), storage_id=storage_id))


def delete_trial(folder: TrialFolder) -> None:
    """Deletes the trial's checkpoints and records; its empty folder keeps the id from being used again.

    May be called again after it failed. Raises `TrialRunningError`.
    """
    with claimed_next_attempt(folder, "delete"):
        for recorded in recorded_checkpoints(folder):
            with contextlib.suppress(CheckpointNotFoundError):
                storage_from_url(recorded.record.storage).delete(recorded.record.storage_id)
        # Last among the things of worth: as long as the trial is listed, its deletion can be repeated.
        folder.clear()


def delete_experiment(home: Home, experiment_id: int) -> None:
    """Deletes the experiment with all its trials. Raises `TrialRunningError`, and has then deleted nothing."""
    experiment = home.experiment(experiment_id)
    trials = list(_trials(home, experiment_id))
    for folder in trials:
        if (attempt := folder.running_attempt()) is not None:
            raise TrialRunningError(folder.trial_id, attempt, "delete")
    for folder in trials:
        delete_trial(folder)
    experiment.delete()


def _trials(home: Home, experiment_id: int) -> Iterator[TrialFolder]:
    for trial_id in home.trial_ids():
        folder = TrialFolder(home, trial_id)
        with contextlib.suppress(TrialNotFoundError):
            if folder.read_record().experiment_id == experiment_id:
                yield folder
