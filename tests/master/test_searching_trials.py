"""Searches with real processes, from their submission to their end."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from master.searches import OPERATIONS, PROMOTION, await_end, events_of, submit_search, submit_text
from processes import wait_for

from core_sdk.experiments.calling import call
from core_sdk.records import AttemptBegun, AttemptOver, ValidationRead
from core_sdk.tracking import Home, HomeTracker


@pytest.fixture(autouse=True)
def this_python() -> None:
    """`python` is the one of the tests."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def test_a_search_stops_the_worse_trials(home: Home, tmp_path: Path) -> None:
    """Each stopped trial ends with a checkpoint, before its last epoch, and is shown as completed by the searcher."""
    experiment_id = submit_search(home, tmp_path, max_trials=4, max_concurrent=2)

    search = await_end(home, experiment_id)

    assert (search.state, search.num_trials, search.progress) == ("COMPLETED", 4, 1.0)
    with HomeTracker(home).view() as view:
        trials = view.trials(experiment_id)
        early = [(trial.state, trial.reason) for trial in trials if trial.steps_completed < 20]
        assert early and set(early) == {("COMPLETED", "stopped by the searcher")}
        assert all(view.checkpoints(trial_id=trial.trial_id) for trial in trials)


def test_a_paused_search_goes_on_where_it_was(home: Home, tmp_path: Path) -> None:
    """Its trials end with a checkpoint, and report nothing twice to the searcher."""
    experiment_id = submit_search(home, tmp_path, max_trials=3)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, experiment_id)))

    call(home.root, "want", experiment_id=experiment_id, state="PAUSED", by="a test")
    wait_for(lambda: call(home.root, "status")["experiments"][0]["running"] == [])
    call(home.root, "want", experiment_id=experiment_id, state="ACTIVE", by="a test")
    search = await_end(home, experiment_id)

    events = events_of(home, experiment_id)
    lengths = [(event.request_id, event.length) for event in events if isinstance(event, ValidationRead)]
    assert search.state == "COMPLETED"
    assert any(isinstance(event, AttemptOver) and event.outcome == "paused" for event in events)
    assert len(lengths) == len(set(lengths))


@pytest.mark.parametrize("wish", ["CANCELED", "KILLED"])
def test_a_canceled_search_ends(home: Home, tmp_path: Path, wish: str) -> None:
    """Its trials are canceled, whatever they are doing."""
    experiment_id = submit_search(home, tmp_path, train="import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    wait_for(lambda: any(isinstance(event, AttemptBegun) for event in events_of(home, experiment_id)))

    call(home.root, "want", experiment_id=experiment_id, state=wish, by="canceled by a test")
    search = await_end(home, experiment_id)

    assert search.state == "CANCELED"
    with HomeTracker(home).view() as view:
        assert {(trial.state, trial.reason) for trial in view.trials(experiment_id)} == {
            ("CANCELED", "canceled by a test")
        }


def test_a_killed_master_loses_no_trial(home: Home, tmp_path: Path) -> None:
    """The trial that runs goes on, and the next master hears what it reported meanwhile."""
    experiment_id = submit_search(home, tmp_path, max_trials=2)
    wait_for(lambda: any(isinstance(event, AttemptBegun) for event in events_of(home, experiment_id)))

    os.kill(call(home.root, "status")["pid"], signal.SIGKILL)
    wait_for(lambda: bool(call(home.root, "status")["experiments"]) or home_has_ended(home, experiment_id))
    search = await_end(home, experiment_id)

    begun = [
        (event.request_id, event.attempt) for event in events_of(home, experiment_id) if isinstance(event, AttemptBegun)
    ]
    assert search.state == "COMPLETED"
    assert len(begun) == len(set(begun)) == 2


def home_has_ended(home: Home, experiment_id: int) -> bool:
    search = home.experiment(experiment_id).read().search
    return search is not None and search.has_ended


def test_a_trial_that_waits_for_its_promotion_has_no_process(home: Home, tmp_path: Path) -> None:
    """It goes on from its checkpoint when it is promoted: no epoch is trained twice."""
    experiment_id = submit_text(home, tmp_path, PROMOTION, OPERATIONS)

    search = await_end(home, experiment_id)

    events = events_of(home, experiment_id)
    lengths = sorted(event.length or 0 for event in events if isinstance(event, ValidationRead))
    assert search.state == "COMPLETED"
    assert lengths == [2, 2, 2, 2, 4, 4]
    assert any(isinstance(event, AttemptOver) and event.outcome == "paused" for event in events)
    for trial_id in home.trial_ids():
        folder = home.trial(trial_id)
        output = "".join(folder.log_path(attempt).read_text() for attempt in folder.attempts()).split("\n")
        assert len(output) == len(set(output))
    with HomeTracker(home).view() as view:
        assert {trial.state for trial in view.trials(experiment_id)} == {"COMPLETED"}
