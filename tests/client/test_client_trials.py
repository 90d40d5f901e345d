"""Trials are looked at, stopped, waited for and deleted from outside."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from client.trainings import Train
from processes import Script

from core_sdk._ground.records import MetadataSet, ProgressReported, StatusSet
from core_sdk._home import Home
from core_sdk._home.attempts.running import await_end
from core_sdk.client import Tracker, TrialState
from core_sdk.errors import PausedError, TrialNotFoundError, TrialNotRunningError, TrialRunningError

# Says when it has begun; ends when it is asked to stop.
OBEDIENT_SCRIPT = """
    from core_sdk import core

    with core.init(name="obedient") as context:
        steps = 0
        print("begun", flush=True)
        while not context.preempt.should_preempt():
            steps += 1
            context.train.report_training_metrics(steps_completed=steps, metrics={"loss": 1 / steps})
"""


def test_a_trial_says_what_it_is(tracker: Tracker, train: Train) -> None:
    """A trial shows everything that was recorded of it."""
    training = train("digits", hparams={"lr": 0.1, "layers": [1, 2], "cap": {"$float": "Infinity"}})
    training.report(40, loss=0.5)
    training.append(ProgressReported(time=1.0, progress=0.4))
    training.append(StatusSet(time=2.0, status="warming up"))
    training.append(MetadataSet(time=3.0, metadata={"host": "here"}))
    training.end("error", "Traceback …\nValueError: boom")

    trial = tracker.get_trial(1)

    assert (trial.trial_id, trial.experiment_id, trial.experiment_name) == (1, 1, "digits")
    assert trial.hparams == {"lr": 0.1, "layers": [1, 2], "cap": math.inf}
    assert (trial.state, trial.reason) == (TrialState.ERROR, "ValueError: boom")
    assert (trial.steps_completed, trial.progress, trial.status) == (40, 0.4, "warming up")
    assert trial.metadata == {"host": "here"}
    assert (trial.num_attempts, trial.num_dropped) == (1, 0)
    assert (trial.latest_checkpoint, trial.continued_from) == (None, None)
    assert trial.end_time == datetime.fromtimestamp(1_700_001_000, UTC)
    assert trial.start_time.utcoffset() is not None
    assert trial.get_experiment().name == "digits"


def test_a_trial_that_dies_is_seen_to_be_dead(tracker: Tracker, train: Train) -> None:
    """A trial whose process died is an error, although nothing was written at its end."""
    training = train()
    trial = tracker.get_trial(1)
    while_running = trial.state
    training.die()

    trial.reload()

    assert while_running is TrialState.ACTIVE
    assert trial.state is TrialState.ERROR


def test_a_paused_script_stops_and_the_wait_ends(
    home: Home, tracker: Tracker, start_script: Callable[..., Script]
) -> None:
    """pause() stops a real script, and wait() raises PausedError."""
    script = start_script(OBEDIENT_SCRIPT)
    script.read_until("begun")
    trial = tracker.get_trial(1)

    trial.pause()
    with pytest.raises(PausedError, match="trial 1 is paused"):
        trial.wait(interval=0.01)

    code, _, errors = script.wait()
    assert code == 0, errors
    assert trial.state is TrialState.PAUSED
    assert trial.steps_completed > 0


def test_the_end_of_a_trial_is_awaited(tracker: Tracker, train: Train) -> None:
    """wait() returns the state in which the trial ended."""
    training = train()
    trial = tracker.get_trial(1)
    ended: list[TrialState] = []
    waiting = threading.Thread(target=lambda: ended.append(trial.wait(interval=0.01)))

    waiting.start()
    training.end()
    waiting.join(timeout=30)

    assert ended == [TrialState.COMPLETED]


def test_a_trial_is_resumed_in_the_background(
    tracker: Tracker, home: Home, start_script: Callable[..., Script]
) -> None:
    """A resumed trial is active when resume() returns, and can be archived after its end."""
    script = start_script(OBEDIENT_SCRIPT)
    assert script.process.stdout is not None
    script.process.stdout.readline()
    trial = tracker.get_trial(1)
    trial.pause()
    script.wait()

    trial.resume()
    trial.reload()
    state, num_attempts = trial.state, trial.num_attempts
    trial.pause()
    await_end(home.trial(1))
    trial.archive()
    is_archived = trial.archived
    trial.unarchive()

    assert (state, num_attempts) == (TrialState.ACTIVE, 2)
    assert trial.state is TrialState.PAUSED
    assert (is_archived, trial.archived) == (True, False)


def test_a_trial_that_does_not_run_cannot_be_paused(tracker: Tracker, train: Train) -> None:
    """Pausing a trial that does not run raises and leaves no request for its next attempt."""
    training = train()
    training.end()

    with pytest.raises(TrialNotRunningError, match="cannot pause trial 1"):
        tracker.get_trial(1).pause()

    assert training.folder.read_stop_request(1) is None


def test_a_deleted_trial_is_gone(tracker: Tracker, train: Train) -> None:
    """A deleted trial is gone, and its id is not reused."""
    train().end()
    trial = tracker.get_trial(1)

    trial.delete()

    with pytest.raises(TrialNotFoundError):
        trial.reload()
    with pytest.raises(TrialNotFoundError):
        trial.iter_logs()
    assert train().trial_id == 2


def test_a_trial_that_runs_is_not_deleted(tracker: Tracker, train: Train) -> None:
    """A running trial is not deleted, and the error says how to stop it."""
    train().report(1, loss=0.5)

    with pytest.raises(TrialRunningError, match="core-sdk trial pause 1"):
        tracker.get_trial(1).delete()

    assert tracker.get_trial(1).steps_completed == 1
