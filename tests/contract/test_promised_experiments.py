"""What is promised of experiments and their master, where no other test holds it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from execution.master.damage import opened_master
from execution.master.searches import await_end, events_of, submit_search, submit_text
from masters import running_master
from processes import wait_for
from promises import promise

from core_sdk._execution.experiments._actions import AskToStop, Finish
from core_sdk._execution.experiments.calling import call, is_master_running
from core_sdk._execution.experiments.experiment import ExperimentStateMachine
from core_sdk._execution.experiments.protocol import Down, GetStatus, Want
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._master import Master
from core_sdk._ground.records import (
    AttemptBegun,
    AttemptOver,
    ExperimentEnded,
    Report,
    StopSent,
    TrialNumbered,
    ValidationRead,
    metrics_from_json,
)
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk._machine.slots import Machine

REPORTS_ON = """
import time
from core_sdk import core

with core.init() as context:
    x = context.info.trial.hparams["x"]
    for epoch in range(1, 9):
        context.train.report_validation_metrics(epoch, {"loss": x + 1 / epoch, "epochs": epoch})
        print("epoch", epoch, flush=True)
        if context.preempt.should_preempt():
            context.train.report_validation_metrics(epoch + 1, {"loss": -1.0, "epochs": epoch + 1})
            break
        time.sleep(0.3)
"""


@promise("submission-kept", "decisions-recorded", "attempts-start-once", "stopped-trial-unheard", "master-killed")
def test_a_search_whose_master_is_killed_loses_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each decision follows from the events before it, no attempt begins twice, and each report is heard once.

    A trial that the search has stopped reports once more, which the search does not hear.
    """
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    submit_search(home, tmp_path, max_trials=4, max_concurrent=2, max_time=8, train=REPORTS_ON)
    wait_for(lambda: any(isinstance(event, ValidationRead) for event in events_of(home, 1)))

    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: not is_master_running(home.root))
    call(home.root, GetStatus())
    await_end(home, 1)
    call(home.root, Down())

    experiment = ExperimentStateMachine(1, SubmittedExperiment(home, 1).config)
    begun, heard = [], []
    for event in events_of(home, 1):
        match event:
            case TrialNumbered():
                assert event.request_id in experiment.waiting
            case AttemptBegun():
                assert event.request_id in experiment.waiting
                begun.append(experiment.trials[event.request_id].trial_id or 0)
                record = next(iter(read_records(home.trial(begun[-1]).journal_path(event.attempt))))
                assert event.time <= record.time
            case ValidationRead():
                heard.append((experiment.trials[event.request_id].trial_id, event.length))
            case StopSent():
                assert AskToStop(event.request_id, event.reason) in experiment.outstanding()
            case ExperimentEnded():
                assert Finish(event.state, event.reason) in experiment.outstanding()
        experiment.apply(event)
    assert experiment.state == "COMPLETED"
    assert sorted(begun) == [1, 2, 3, 4]
    assert [home.trial(trial_id).attempts() for trial_id in begun] == [[1]] * 4
    reported = [
        (trial_id, metrics_from_json(record.metrics))
        for trial_id in begun
        for record in read_records(home.trial(trial_id).journal_path(1))
        if isinstance(record, Report)
    ]
    assert sorted(heard) == sorted((trial_id, metrics["epochs"]) for trial_id, metrics in reported)
    assert -1.0 in [metrics["loss"] for _, metrics in reported]
    assert all(trial.metric != -1.0 for trial in experiment.trials.values())
    for trial_id in begun:
        # A script that is stopped may say so.
        lines = re.sub("stopping at .*\n", "", home.trial(trial_id).log_path(1).read_text()).splitlines()
        assert lines == [f"epoch {number}" for number in range(1, len(lines) + 1)] and lines


@promise("one-master")
def test_a_second_master_is_refused(home: Home) -> None:
    """A second master for the same home cannot start, and the first one still answers."""
    with running_master(Home.create(home.root)):
        with pytest.raises(BlockingIOError):
            Master(home, Machine(1))

        answered = call(home.root, GetStatus())

    assert answered.pid == os.getpid()


SAVES_LATE = """
import time
from pathlib import Path
from core_sdk import core

with core.init() as context:
    while not context.preempt.should_preempt():
        time.sleep(0.05)
    Path("saving").touch()
    while not Path("may save").exists():
        time.sleep(0.05)
"""


@promise("stop-has-its-time")
def test_a_stop_has_its_time_whatever_the_clock_does(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that is stopped gets its full time to save, even if the clock jumps and the master is replaced."""
    text = f"{{name: one, entrypoint: [{sys.executable}, train.py], searcher: {{name: single, metric: m}}}}"
    with opened_master(Home.create(home.root)):
        experiment_id = submit_text(home, tmp_path, text, SAVES_LATE)
        code = home.folder(1).code_path
        wait_for(lambda: home.folder(1).journal_path(1).exists())
        call(home.root, Want(experiment_id=experiment_id, state="PAUSED"))
        wait_for((code / "saving").exists)
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 7200)
        for _ in range(3):  # between two answers the master looks at its attempts
            call(home.root, GetStatus())
    with opened_master(home):
        for _ in range(3):
            call(home.root, GetStatus())
        (code / "may save").touch()
        wait_for(lambda: any(isinstance(event, AttemptOver) for event in events_of(home, experiment_id)))

    kinds = [type(event).__name__ for event in events_of(home, experiment_id)]
    assert "StopSent" in kinds and "KillSent" not in kinds
