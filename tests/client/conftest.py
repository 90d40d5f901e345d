"""A home in which trainings are recorded, and a tracker that reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from client.trainings import Train, Training
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus, Want
from core_sdk._execution.master.local import local_master
from core_sdk._ground.records import TrialRecord
from core_sdk._home import Home, TrialFolder
from core_sdk.client import Tracker


@pytest.fixture
def train(home: Home) -> Iterator[Train]:
    """Starts a new trial, or the next attempt of the trial of `folder`."""
    started: list[Training] = []

    def start(
        experiment: str = "digits",
        hparams: Mapping[str, Any] | None = None,
        folder: TrialFolder | None = None,
        resumed_steps: int = 0,
    ) -> Training:
        folder = folder or _new_trial(Home.create(home.root), experiment, hparams or {})
        started.append(Training(folder, len(folder.attempts()) + 1, resumed_steps))
        return started[-1]

    yield start
    for training in started:
        training.die()


@pytest.fixture
def master(home: Home) -> Iterator[None]:
    """A master with two slots in this process. Experiments that have not ended at the end of the test are killed."""
    with local_master(Home.create(home.root), 2):
        yield
        for experiment in call(home.root, GetStatus()).experiments:
            call(home.root, Want(experiment_id=experiment.experiment_id, state="KILLED"))
        wait_for(lambda: call(home.root, GetStatus()).experiments == ())


@pytest.fixture
def tracker() -> Tracker:
    """Reads the home in which `train` records."""
    return Tracker()


def _new_trial(home: Home, experiment: str, hparams: Mapping[str, Any]) -> TrialFolder:
    folder = home.create_trial()
    folder.write_record(
        TrialRecord(
            trial_id=folder.trial_id,
            experiment_id=home.find_or_create_experiment(experiment).experiment_id,
            created=time.time(),
            seed=0,
            hparams=dict(hparams),
            is_defined=True,
        )
    )
    return folder
