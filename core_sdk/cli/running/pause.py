"""Asking a trial to stop, and waiting until it has."""

from __future__ import annotations

import time

from core_sdk.cli._messages import say
from core_sdk.tracking import Tracker, TrialFolder
from core_sdk.tracking.attempts.running import await_end

_POLL_INTERVAL_S = 0.1
# Long enough for a save of the usual size; `trial pause --wait` waits for longer ones.
_STOPPING_WAIT_S = 60.0


def pause_trial(tracker: Tracker, trial_id: int, *, wait: bool) -> None:
    """Raises `TrialNotRunningError`."""
    attempt = tracker.request_stop(trial_id, "core-sdk trial pause")
    say(f"asked trial {trial_id} to stop: it does when it next calls should_preempt()")
    if not wait:
        return
    while any(row.is_running for row in tracker.attempts(trial_id) if row.attempt == attempt):
        time.sleep(_POLL_INTERVAL_S)
    say(f"trial {trial_id} has stopped: `core-sdk trial resume {trial_id}` goes on with it")


def await_stop(folder: TrialFolder) -> None:
    """Waits for the end of an attempt that was asked to stop, but not for long; any other is not waited for."""
    attempt = folder.running_attempt()
    if attempt is not None and folder.read_stop_request(attempt) is not None:
        say(f"trial {folder.trial_id} is stopping: waiting for its end")
        await_end(folder, _STOPPING_WAIT_S)
