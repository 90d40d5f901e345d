"""A home with experiments in several states, of which files are damaged while its master runs, or before one starts."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from execution.master.searches import events_of, submit_text
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus, Want
from core_sdk._execution.master._master import Master
from core_sdk._execution.master._server import Server
from core_sdk._ground.records import AttemptOver, Event, ValidationRead
from core_sdk._home import Home
from core_sdk._home.attempts.killing import kill, killable_attempt
from core_sdk._home.folders import ExperimentFolder
from core_sdk._machine.slots import Machine

_SEARCH = """
name: {name}
entrypoint: [{python}, train.py]
hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}
searcher: {{name: random, metric: loss, max_trials: 4, max_concurrent_trials: 1}}
reproducibility: {{experiment_seed: 1}}
"""

_TRAIN = """
import sys
import time
from core_sdk import core

with core.init() as context:
    for step in range(1, 4):
        context.train.report_validation_metrics(steps_completed=step, metrics={"loss": 1 / step})
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, _):
        (path / "state").write_text("3")
    if %s:
        while not context.preempt.should_preempt():
            time.sleep(0.2)
"""


@dataclass(frozen=True)
class HomeWithExperiments:
    home: Home
    running: int
    """An experiment whose first trial runs until it is asked to stop."""
    paused: int
    """One that is paused, perhaps after its first trial has ended."""
    running_trial: int
    num_trials: int

    def folder(self, experiment_id: int) -> ExperimentFolder:
        return ExperimentFolder(self.home.root, experiment_id)

    def events(self) -> dict[int, list[Event]]:
        """Returns the events of the experiments whose journals can be read."""
        found = {}
        for experiment_id in (self.running, self.paused):
            with contextlib.suppress(Exception):
                found[experiment_id] = events_of(self.home, experiment_id)
        return found

    def states(self) -> dict[int, str]:
        return {one.experiment_id: one.state for one in call(self.home.root, GetStatus()).experiments}

    def problem(self, experiment_id: int) -> str:
        experiments = call(self.home.root, GetStatus()).experiments
        return str(next(one.suspended for one in experiments if one.experiment_id == experiment_id))

    def end_running_trial(self) -> None:
        folder = self.home.folder(self.running_trial)
        if (attempt := killable_attempt(folder)) is not None:
            kill(folder, attempt)


@contextlib.contextmanager
def made_home(home: Home, tmp_path: Path, *, has_ended_trial: bool = False) -> Iterator[HomeWithExperiments]:
    """Makes a home with a running and a paused experiment, without a master."""
    with opened_master(Home.create(home.root)):
        text = _SEARCH.format(name="paused", python=sys.executable)
        paused = submit_text(home, tmp_path, text, _TRAIN % False, is_paused=not has_ended_trial)
        if has_ended_trial:
            wait_for(lambda: any(isinstance(event, AttemptOver) for event in events_of(home, paused)))
            call(home.root, Want(experiment_id=paused, state="PAUSED"))
            wait_for(lambda: call(home.root, GetStatus()).experiments[0].running == ())
        running = submit_text(home, tmp_path, _SEARCH.format(name="running", python=sys.executable), _TRAIN % True)
        wait_for(lambda: sum(isinstance(event, ValidationRead) for event in events_of(home, running)) == 3)
    trials = home.trial_ids()
    made = HomeWithExperiments(home, running, paused, trials[-1], len(trials))
    try:
        yield made
    finally:
        made.end_running_trial()


@contextlib.contextmanager
def opened_master(home: Home, num_slots: int = 2) -> Iterator[threading.Thread]:
    """Runs a master in this process and yields its thread; its trials outlive it."""
    master = Master(home, Machine(num_slots))
    thread = threading.Thread(target=master.run)
    server = Server(home.root, master.answer)
    master.recover()
    thread.start()
    try:
        yield thread
    finally:
        server.close()
        master.stop()
        thread.join()
        master.close()
