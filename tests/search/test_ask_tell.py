"""A loop of one's own asks a search what to train."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from core_sdk.errors import InvalidConfigError
from core_sdk.search import AskedTrial, AskTell, ExitedReason

SPACE = {"lr": {"loguniform": [1e-4, 1e-1]}}
SEARCHERS: dict[str, dict[str, Any]] = {
    "random": {"name": "random", "max_trials": 12},
    "random of lengths": {"name": "random", "max_trials": 12, "max_length": 16},
    "stopping": {"name": "asha", "max_trials": 12, "num_rungs": 3, "time_metric": "epochs", "max_time": 16},
    "promotion": {"name": "asha", "max_trials": 12, "num_rungs": 2, "max_length": 16},
    "adaptive": {"name": "adaptive_asha", "max_trials": 12, "max_length": 16, "stop_once": True},
}
every_searcher = pytest.mark.parametrize("searcher", SEARCHERS.values(), ids=SEARCHERS.keys())


def config(searcher: dict[str, Any]) -> dict[str, Any]:
    return {"searcher": {"metric": "loss", **searcher}, "hyperparameters": SPACE}


def loss_of(trial: AskedTrial, length: float) -> float:
    return float(abs(math.log10(trial.hparams["lr"]) + 2) + 1 / (length + 1))


def train(study: AskTell, trial: AskedTrial) -> list[Any]:
    """Trains a trial as long as it goes on; what happened, for comparison."""
    happened: list[Any] = []
    is_timed, length = trial.until is None, 0
    goes_on = True
    while goes_on:
        length = length + 1 if is_timed else trial.until or 0
        goes_on = study.tell(trial, loss_of(trial, length), length)
        happened.append((str(trial.request_id), length, goes_on))
    return happened


@every_searcher
def test_a_loop_trains_all_trials(searcher: dict[str, Any]) -> None:
    """A loop of ask() and tell() trains all trials and finds the best of them."""
    study = AskTell(config(searcher))
    asked: dict[Any, AskedTrial] = {}

    while (trial := study.ask()) is not None:
        asked[trial.request_id] = trial
        train(study, trial)

    assert len(asked) == 12
    assert study.progress == 1
    assert study.best is not None
    assert study.best.metric == min(trial.metric for trial in asked.values() if trial.metric is not None)


@every_searcher
def test_a_study_goes_on_in_another_process(searcher: dict[str, Any]) -> None:
    """A study restored from its saved state trains the same trials as far as one that is never interrupted."""
    study, undisturbed = AskTell(config(searcher)), AskTell(config(searcher))
    happened: list[Any] = []
    expected: list[Any] = []

    while True:
        study = AskTell(config(searcher), json.loads(json.dumps(study.state(), allow_nan=False)))
        if (trial := study.ask()) is None:
            break
        happened += train(study, trial)
    while (trial := undisturbed.ask()) is not None:
        expected += train(undisturbed, trial)

    assert sorted(happened) == sorted(expected)


def test_several_trials_are_asked_for_at_the_same_time() -> None:
    """ask() hands out as many trials as may run at once, and a further one after a trial has been told."""
    study = AskTell(config(SEARCHERS["random"] | {"max_concurrent_trials": 2}))
    first, second = study.ask(), study.ask()
    assert first is not None
    assert second is not None
    assert study.ask() is None

    assert study.tell(first, 0.5) is False

    assert study.ask() is not None


def test_a_trial_that_was_asked_for_and_not_told_is_asked_again() -> None:
    """A trial whose process was killed before it told a result is handed out again by the restored study."""
    study = AskTell(config(SEARCHERS["random"] | {"max_concurrent_trials": 2}))
    first = study.ask()
    assert first is not None

    again = AskTell(config(SEARCHERS["random"] | {"max_concurrent_trials": 2}), study.state()).ask()

    assert again == first


def test_a_loop_may_end_a_trial() -> None:
    """A trial that failed or has invalid hyperparameters can be ended by the loop, and another one replaces it."""
    study = AskTell(config(SEARCHERS["random"] | {"max_trials": 2}))
    num_asked = 0

    while (trial := study.ask()) is not None:
        num_asked += 1
        study.end(trial, ExitedReason.INVALID_HP if num_asked == 1 else None)
        study.end(trial)
        with pytest.raises(ValueError, match="has ended"):
            study.tell(trial, 0.1)

    assert num_asked == 3


def test_a_trial_that_is_displaced_while_it_trains_ends_at_its_next_report() -> None:
    """A displaced trial learns from `should_stop`, or from the return value of `tell`, that it must end."""
    study = AskTell(config(SEARCHERS["stopping"] | {"divisor": 2, "max_time": 8}))
    trials = [trial for trial in (study.ask() for _ in range(2)) if trial is not None]
    assert study.tell(trials[0], 0.5, 2)

    assert study.tell(trials[1], 0.4, 2)

    assert [trial.should_stop for trial in trials] == [True, False]
    assert not study.tell(trials[0], 0.3, 3)


def test_nan_is_never_the_best() -> None:
    """Neither a trial whose metric is NaN nor a trial without a metric becomes the best one."""
    study = AskTell(config(SEARCHERS["random"]))
    first, second = study.ask(), study.ask()
    assert first is not None
    assert second is not None

    bests = []
    for trial, loss in ((first, math.nan), (second, 0.5)):
        study.tell(trial, loss)
        bests.append(study.best and study.best.request_id)

    assert bests == [None, second.request_id]


def test_what_is_wrong_with_a_study_is_told() -> None:
    """An error names the unknown key of the configuration, or the argument that is missing in tell()."""
    with pytest.raises(InvalidConfigError, match="did you mean max_trials"):
        AskTell({"searcher": {"name": "random", "metric": "loss", "max_tials": 3}})
    study = AskTell(config(SEARCHERS["stopping"]))
    trial = study.ask()
    assert trial is not None
    with pytest.raises(ValueError, match="tell its value"):
        study.tell(trial, 0.5)
