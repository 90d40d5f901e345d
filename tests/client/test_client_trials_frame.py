"""Trials become the rows of a frame."""

from __future__ import annotations

import math

import pandas
from client.trainings import Train

from core_sdk._ground.records import SearcherMetric
from core_sdk._home import Home
from core_sdk.client import Tracker


def test_trials_are_rows_of_a_frame(home: Home, tracker: Tracker, train: Train) -> None:
    """The frame of trials has hyperparameters, best and last metrics, with gaps where a trial lacks one."""
    first = train(hparams={"lr": 0.1, "model": {"layers": 2}})
    for step, loss in ((1, 0.5), (2, 0.3), (3, 0.4)):
        first.report(step, "validation", loss=loss)
    first.report(3, "training", speed=7.0)
    first.end()
    train(hparams={"lr": 0.2})
    with home.experiment(1).edit() as record:
        record.searcher_metric = SearcherMetric(name="loss")

    frame = pandas.DataFrame(tracker.get_experiment(1).trials_frame())

    assert list(frame.columns) == [
        *("trial_id", "experiment_id", "state", "num_attempts", "steps_completed", "start_time", "end_time"),
        *("hparams.lr", "hparams.model.layers", "best.validation.loss", "last.validation.loss", "last.training.speed"),
    ]
    assert list(frame["state"]) == ["COMPLETED", "ACTIVE"]
    assert list(frame["hparams.lr"]) == [0.1, 0.2]
    row = frame.iloc[0]
    assert (row["hparams.model.layers"], row["best.validation.loss"], row["last.validation.loss"]) == (2, 0.3, 0.4)
    assert math.isnan(frame.iloc[1]["best.validation.loss"])


def test_a_frame_holds_several_experiments(tracker: Tracker, train: Train) -> None:
    """A frame covers all experiments or those that are named, and is empty without trials."""
    assert tracker.trials_frame() == {}
    train("digits", hparams={"lr": 0.1})
    train("letters", hparams={"depth": 3})

    everything, letters = tracker.trials_frame(), tracker.trials_frame([2])

    assert everything["experiment_id"] == [1, 2]
    assert everything["hparams.lr"] == [0.1, None]
    assert (letters["trial_id"], letters["hparams.depth"]) == ([2], [3])
    assert "hparams.lr" not in letters
