"""A home in which trainings are recorded, and a tracker that reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from client.trainings import Train, Training

from core_sdk.client import Tracker
from core_sdk.records import TrialRecord
from core_sdk.tracking import Home, TrialFolder


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
