"""One trial of a search is killed, and the search goes on."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from execution.master.searches import await_end, events_of, submit_search
from processes import wait_for

from core_sdk._execution.experiments.submission import submit
from core_sdk._execution.master.local import local_master
from core_sdk._execution.steering import experiments, trials
from core_sdk._ground.records import AttemptBegun, TrialWanted
from core_sdk._home import Home, open_view
from core_sdk.errors import MasterError, TrialNotRunningError

WAIT_IF_FIRST = """
import time
from core_sdk import core
with core.init() as context:
    context.train.report_validation_metrics(1, {"loss": 1.0, "epochs": 1})
    if context.info.trial.trial_id == 1:
        time.sleep(600)
    context.train.report_validation_metrics(20, {"loss": 1.0, "epochs": 20})
"""

WAIT_IF_SECOND = WAIT_IF_FIRST.replace("trial_id == 1", "trial_id == 2")


def test_a_killed_trial_is_canceled_and_not_started_again(home: Home, tmp_path: Path) -> None:
    """A killed trial of a search is canceled and not restarted, and the others complete."""
    experiment_id = submit_search(home, tmp_path, max_trials=2, train=WAIT_IF_FIRST)
    while not home.folder(1).exists():
        pass  # the master has not recorded the trial's number yet

    trials.kill(home, 1, "a test")
    is_running = home.folder(1).running_attempt() is not None
    search = await_end(home, experiment_id)

    begun = [event for event in events_of(home, experiment_id) if isinstance(event, AttemptBegun)]
    with open_view(home) as view:
        states = [(trial.state, trial.reason) for trial in view.trials(experiment_id)]
    assert not is_running
    assert search.state == "COMPLETED"
    assert states[0] == ("CANCELED", "killed by a test")
    assert all(state == "COMPLETED" for state, _ in states[1:])
    assert len({event.request_id for event in begun}) == len(begun)
    with pytest.raises(TrialNotRunningError):
        trials.kill(home, 1, "a test")


def test_a_trial_that_has_ended_cannot_be_killed(home: Home, tmp_path: Path) -> None:
    """A trial that has ended cannot be killed: its state stays, and no event says that it was killed."""
    experiment_id = submit_search(home, tmp_path, max_trials=2, train=WAIT_IF_SECOND)
    # The lock of the attempt is held before the master has recorded which trial it is of; its journal is made after.
    wait_for(lambda: home.folder(2).exists() and home.folder(2).journal_path(1).exists())
    num_events = len(events_of(home, experiment_id))

    with pytest.raises(MasterError, match="trial 1 has ended: it is COMPLETED"):
        trials.kill(home, 1, "a test")

    assert not [event for event in events_of(home, experiment_id)[num_events:] if isinstance(event, TrialWanted)]
    trials.kill(home, 2, "a test")


WAIT_ONCE = """
import os, pathlib, time
from core_sdk import core
pid = pathlib.Path("pid.txt")
with core.init() as context:
    if not pid.exists():
        context.train.report_validation_metrics(1, {"loss": 1.0})
        pid.with_suffix(".new").write_text(str(os.getpid()))
        pid.with_suffix(".new").rename(pid)
        time.sleep(600)
    context.train.report_validation_metrics(2, {"loss": 1.0})
"""


def test_a_trial_that_its_experiment_begins_again_has_not_failed(home: Home, tmp_path: Path) -> None:
    """After a failed attempt it is PAUSED or QUEUED, as its experiment is, and says what has happened."""
    pid, command = tmp_path / "pid.txt", [sys.executable, "-c", WAIT_ONCE.replace("pid.txt", str(tmp_path / "pid.txt"))]
    config = json.dumps({"name": "once", "entrypoint": command, "searcher": {"name": "single", "metric": "loss"}})

    def row() -> tuple[str, str]:
        with open_view(home) as view:
            return view.trial(1).state, view.trial(1).reason

    with local_master(Home.create(home.root), 1):
        submit(home, config, source="")
        wait_for(pid.exists)
        experiments.pause(home, 1, "a test")
        os.kill(int(pid.read_text()), signal.SIGKILL)
        wait_for(lambda: row() == ("PAUSED", "goes on with its experiment: killed by SIGKILL"))
        experiments.set_slots(home, 1, max_slots=0)
        experiments.activate(home, 1, "a test")
        wait_for(lambda: row()[0] == "QUEUED")
        experiments.set_slots(home, 1, max_slots=-1)
        assert await_end(home, 1).state == "COMPLETED"

    assert row() == ("COMPLETED", "")
