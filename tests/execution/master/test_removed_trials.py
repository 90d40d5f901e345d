"""A trial whose folder somebody removes ends, and its search goes on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psutil
import pytest
from execution.master.damage import opened_master
from execution.master.searches import await_end, events_of, submit_text
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import Want
from core_sdk._ground.records import AttemptBegun, AttemptOver, Wish
from core_sdk._home import Home

SEARCH = """
name: search
entrypoint: [python, train.py]
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
searcher: {name: random, metric: loss, max_trials: 2, max_concurrent_trials: 1}
"""

TRAIN = """
import os
import time
from core_sdk import core

with core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
    print("trains", os.getpid(), flush=True)
    while context.info.trial.trial_id == 1 and not context.preempt.should_preempt():
        time.sleep(0.1)
"""


def begin(home: Home, tmp_path: Path) -> tuple[int, int]:
    """Returns the experiment and the process of its running trial."""
    experiment_id = submit_text(home, tmp_path, SEARCH, TRAIN)
    log = home.root / "runs" / "1" / "1.log"
    wait_for(lambda: log.exists() and re.search(r"trains \d+\n", log.read_text()) is not None)
    return experiment_id, int(log.read_text().split()[-1])


def remove(home: Home, trial_id: int) -> None:
    path = home.folder(trial_id).path
    while path.exists():  # its processes may write into it meanwhile
        shutil.rmtree(path, ignore_errors=True)


def outcomes(home: Home, experiment_id: int) -> list[tuple[str, bool]]:
    """Returns how the attempts have ended, and whether that was said to be since the folder was removed."""
    events = [event for event in events_of(home, experiment_id) if isinstance(event, AttemptOver)]
    return [(event.outcome, "was removed" in event.reason) for event in events]


def test_a_search_goes_on_without_a_trial_that_runs_and_is_removed(home: Home, tmp_path: Path) -> None:
    """If a running trial's folder is removed, the trial counts as failed and the search goes on."""
    with opened_master(Home.create(home.root)):
        experiment_id, pid = begin(home, tmp_path)

        remove(home, 1)
        search = await_end(home, experiment_id)
        wait_for(lambda: not psutil.pid_exists(pid))

    assert search.state == "COMPLETED"
    assert outcomes(home, experiment_id) == [("hopeless", True), ("completed", False)]


def test_a_trial_that_is_removed_while_no_master_runs_has_ended_for_the_next_one(home: Home, tmp_path: Path) -> None:
    """A trial that is removed without a master is ended by the next one, and its processes are killed."""
    with opened_master(Home.create(home.root)):
        experiment_id, pid = begin(home, tmp_path)
    remove(home, 1)

    with opened_master(home):
        search = await_end(home, experiment_id)
        wait_for(lambda: not psutil.pid_exists(pid))

    assert search.state == "COMPLETED"
    assert outcomes(home, experiment_id) == [("hopeless", True), ("completed", False)]


@pytest.mark.parametrize("state", ["CANCELED", "KILLED", "ACTIVE"])
def test_an_experiment_with_a_removed_trial_can_be_ended(home: Home, tmp_path: Path, state: Wish) -> None:
    """An experiment with a removed trial can be canceled, killed or activated."""
    with opened_master(Home.create(home.root)):
        experiment_id, _ = begin(home, tmp_path)
        call(home.root, Want(experiment_id=experiment_id, state="PAUSED"))
        wait_for(lambda: len(outcomes(home, experiment_id)) == 1)
        remove(home, 1)

        call(home.root, Want(experiment_id=experiment_id, state=state))
        search = await_end(home, experiment_id)

    assert search.state == ("COMPLETED" if state == "ACTIVE" else "CANCELED")
    assert sum(isinstance(event, AttemptBegun) for event in events_of(home, experiment_id)) <= 3
