"""Kills a trial, whether or not a master has started it."""

from __future__ import annotations

from core_sdk.errors import RecordDamagedError
from core_sdk.experiments.calling import call
from core_sdk.tracking import HomeTracker
from core_sdk.tracking.attempts.ending import read_end, read_settled
from core_sdk.tracking.attempts.running import await_end
from core_sdk.tracking.rows import TrialState
from core_sdk.tracking.states import trial_state


def kill_trial(tracker: HomeTracker, trial_id: int, by: str) -> TrialState:
    """Kills the trial with all its processes, and returns its state when they are gone.

    It is canceled, unless its script had already recorded how it ended.

    If a master carries out the trial's experiment, the master kills the trial, so that it does not start it again. It
    also cancels a trial that does not run yet. Raises `TrialNotRunningError`, `AgentNotFoundError` or `MasterError`.
    """
    experiment_id = tracker.trial_record(trial_id).experiment_id
    if not _goes_on(tracker, experiment_id):
        tracker.kill(trial_id, by)
        folder = tracker.home.folder(trial_id)
        return trial_state(read_end(folder, None), False, read_settled(folder))[0]
    call(tracker.home.root, "kill_trial", experiment_id=experiment_id, trial_id=trial_id, by=f"killed by {by}")
    await_end(tracker.home.folder(trial_id))
    return "CANCELED"


def _goes_on(tracker: HomeTracker, experiment_id: int) -> bool:
    """Returns whether a master carries out the experiment. No master does so while a file of it is damaged."""
    try:
        search = tracker.experiment_record(experiment_id).search
    except RecordDamagedError:
        return False
    return search is not None and not search.has_ended and not search.is_damaged
