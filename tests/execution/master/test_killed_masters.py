"""A master that is killed decides no otherwise than one that is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from execution.master.searches import await_end, events_of, submit_search
from processes import is_living, wait_for
from promises import promise

from core_sdk._execution.experiments.calling import call, is_master_running
from core_sdk._execution.experiments.protocol import Down, GetStatus, Want
from core_sdk._ground.records import AttemptBegun, AttemptOver, Event, TrialNumbered, ValidationRead
from core_sdk._home import Home, open_view
from core_sdk.errors import MasterError

KILLED_MASTER = Path(__file__).parent / "killed_master.py"

# One trial at a time, whose reports do not depend on when anything happens: every run decides alike.
TRAIN = """
import time
from core_sdk import core

with core.init() as context:
    x = context.info.trial.hparams["x"]
    first = context.info.trial.steps_completed + 1
    for epoch in range(first, 5):
        context.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": x + 1 / epoch, "epochs": epoch})
        with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            (path / "epoch").write_text(str(epoch))
        if epoch in (2, 4):
            # Whoever comes to the last epoch is asked in any case; to end before that would be a matter of time.
            asked_by = time.monotonic() + (3 if epoch == 2 else 60)
            while not context.preempt.should_preempt() and time.monotonic() < asked_by:
                time.sleep(0.02)
        if context.preempt.should_preempt():
            break
"""


def search(home: Home, tmp_path: Path) -> int:
    return submit_search(home, tmp_path, max_trials=3, max_time=4, train=TRAIN)


def decisions(home: Home, experiment_id: int) -> list[Any]:
    """Returns the trials, what the searcher heard and how the trials ended."""
    events = events_of(home, experiment_id)
    trials = [event.request_id for event in events if isinstance(event, TrialNumbered)]
    heard = [
        (trials.index(event.request_id), event.length, event.metric)
        for event in events
        if isinstance(event, ValidationRead)
    ]
    with open_view(home) as view:
        ends = [(trial.hparams, trial.state, trial.reason) for trial in view.trials(experiment_id)]
    return [trials, sorted(heard), ends]


def assert_none_began_twice(events: list[Event]) -> None:
    begun = Counter((event.request_id, event.attempt) for event in events if isinstance(event, AttemptBegun))
    # The master was killed between its word and the start: nothing of that attempt has ever run.
    begun.subtract(
        (event.request_id, event.attempt)
        for event in events
        if isinstance(event, AttemptOver) and event.outcome == "lost"
    )
    created = Counter(event.request_id for event in events if isinstance(event, TrialNumbered))
    # One that was lost as the last may wait to begin again.
    assert max(begun.values(), default=0) <= 1
    assert set(created.values()) == {1}


def run_with_a_kill(home: Home, tmp_path: Path, number: int, moment: str) -> int:
    """Submits the search to a master that dies at this event; the next one carries it to its end."""
    Home.create(home.root)
    subprocess.run([sys.executable, str(KILLED_MASTER), str(number), moment, "--stay"], check=True, timeout=60)
    try:
        experiment_id = search(home, tmp_path)
    except MasterError:
        experiment_id = search(home, tmp_path)
    wait_for(lambda: not is_master_running(home.root) or has_ended(home, experiment_id))
    call(home.root, GetStatus())
    await_end(home, experiment_id)
    return experiment_id


def has_ended(home: Home, experiment_id: int) -> bool:
    found = home.experiment(experiment_id).read().search
    return found is not None and found.has_ended


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], int]:
    """The decisions of a search without kills, and its number of events."""
    tmp_path = tmp_path_factory.mktemp("undisturbed")
    home = Home.create(tmp_path / "home")
    before = dict(os.environ)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    experiment_id = search(home, tmp_path)
    await_end(home, experiment_id)
    call(home.root, Down())
    os.environ.update(before)
    return decisions(home, experiment_id), len(events_of(home, experiment_id))


@promise("attempts-start-once", "master-killed")
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 27))
def test_a_master_that_is_killed_at_an_event_decides_alike(
    number: int, moment: str, home: Home, tmp_path: Path, undisturbed: tuple[list[Any], int]
) -> None:
    """If the master is killed before or after any event, the search makes the same decisions."""
    expected, num_events = undisturbed
    assert number <= num_events, "the search has fewer events, and this kill would never come"

    experiment_id = run_with_a_kill(home, tmp_path, number, moment)

    assert decisions(home, experiment_id) == expected
    assert_none_began_twice(events_of(home, experiment_id))


NUM_KILLS = 100
BUSY = """
import time
from core_sdk import core

with core.init() as context:
    x = context.info.trial.hparams["x"]
    first = context.info.trial.steps_completed + 1
    for epoch in range(first, 21):
        context.train.report_validation_metrics(steps_completed=epoch, metrics={"loss": x + 1 / epoch, "epochs": epoch})
        print("epoch", epoch, flush=True)
        if context.preempt.should_preempt():
            with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                (path / "epoch").write_text(str(epoch))
            break
        time.sleep(0.1)
"""


@pytest.mark.timeout(1800)
def test_a_hundred_kills_lose_nothing(home: Home, tmp_path: Path) -> None:
    """After a hundred kills of the master, every attempt began once and every report was heard once."""
    Home.create(home.root)
    chance = random.Random(1)
    call(home.root, GetStatus(), options=["--slots=8", "--stay"])
    experiment_id = submit_search(home, tmp_path, max_trials=400, max_concurrent=8, max_time=20, train=BUSY)

    for _ in range(NUM_KILLS):
        time.sleep(chance.uniform(0.0, 1.0))  # the random moment itself
        pid: int = call(home.root, GetStatus(), options=["--slots=8", "--stay"]).pid
        os.kill(pid, signal.SIGKILL)
        while is_living(pid):  # the end of a trial may begin the next master at once
            time.sleep(0.01)
    call(home.root, GetStatus(), options=["--slots=8", "--stay"])
    call(home.root, Want(experiment_id=experiment_id, state="PAUSED"))
    wait_for(lambda: call(home.root, GetStatus()).experiments[0].running == (), timeout_s=120)

    events = events_of(home, experiment_id)
    assert_none_began_twice(events)
    trial_ids = {event.request_id: event.trial_id for event in events if isinstance(event, TrialNumbered)}
    heard: dict[int, list[Any]] = {trial_id: [] for trial_id in trial_ids.values()}
    for event in events:
        if isinstance(event, ValidationRead):
            heard[trial_ids[event.request_id]].append(event.length)
    assert heard == reports_of(home, experiment_id)


def reports_of(home: Home, experiment_id: int) -> dict[int, list[float]]:
    """Returns the epochs of all validations that the trials' own journals have, in order."""
    with open_view(home) as view:
        return {
            trial.trial_id: [
                report.metrics["epochs"] for report in view.reports(trial.trial_id, "validation", superseded=True)
            ]
            for trial in view.trials(experiment_id)
        }
