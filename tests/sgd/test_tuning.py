"""Searches that train creator trainers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import optuna
import pytest
from masters import running_master
from processes import wait_for
from sgd.creators import CREATORS

from core_sdk import client, sgd
from core_sdk._home import Home
from core_sdk.errors import NotPicklableError

GRID: dict[str, Any] = {
    "hyperparameters": {"lr": {"type": "categorical", "vals": [0.0001, 0.1]}},
    "searcher": {"name": "grid", "metric": "validation_loss"},
}


def test_a_search_trains_trainers(home: Home) -> None:
    """Each trial on slots for all its replicas; the best model can be had from its checkpoint."""
    with running_master(Home.create(home.root), num_slots=2):
        experiment = sgd.tune(
            **GRID,
            num_passes=2,
            experiment_config={"resources": {"max_slots": 2}, "description": "two rates"},
            num_replicas=2,
            batch_size=8,
            **CREATORS,
        )
        experiment.wait()

        trials = experiment.list_trials()
        best = experiment.top_checkpoint()

    assert [trial.state.name for trial in trials] == ["COMPLETED"] * 2
    assert experiment.config["resources"]["slots_per_trial"] == experiment.config["resources"]["max_slots"] == 2
    assert experiment.config["description"] == "two rates"
    assert best.get_trial().hparams == {"lr": 0.1}


def wait_in_pass_2(
    config: dict[str, Any], model: Any, batches: Any, criterion: Any, optimizer: Any
) -> dict[str, float]:
    """Its data are its own: it takes no batch."""
    began, may_end = (Path(config["directory"], name) for name in ("pass 1", "may end"))
    if began.exists():
        began.with_name("pass 2").touch()
        wait_for(may_end.exists)
    began.touch()
    return {"loss": 1.0}


def test_a_trial_that_is_stopped_in_a_pass_ends_it(home: Home, tmp_path: Path) -> None:
    """A trial that is stopped during a pass ends after it with a checkpoint, and resumes with the next pass."""
    num_passes = 50  # more than there is time for until it hears of the stop
    with running_master(Home.create(home.root)):
        experiment = sgd.tune(
            hyperparameters={},
            searcher={"name": "single", "metric": "validation_loss"},
            num_passes=num_passes,
            config={"directory": str(tmp_path)},
            train_function=wait_in_pass_2,
            **CREATORS,
        )
        wait_for((tmp_path / "pass 2").exists)
        experiment.pause()
        (tmp_path / "may end").touch()
        wait_for(lambda: client.get_trial(1).state.name == "PAUSED")
        last = client.get_trial(1).select_checkpoint(latest=True).metadata["epoch"]
        trained = [each.metrics["epoch"] for each in client.get_trial(1).iter_metrics("training")]
        experiment.activate()
        experiment.wait()

    assert 2 <= last < num_passes
    assert trained == [*range(1, last + 1)]
    trial = client.get_trial(1)
    assert trial.state.name == "COMPLETED"
    assert [each.metrics["epoch"] for each in trial.iter_metrics("training")] == [*range(1, num_passes + 1)]


def test_a_trainer_is_what_a_study_of_optuna_optimizes() -> None:
    """The objective of an Optuna study can be a plain function that runs a trainer."""

    def objective(trial: optuna.Trial) -> float:
        config = {"lr": trial.suggest_categorical("lr", [0.0001, 0.1])}
        with sgd.PyTorchTrainer(**CREATORS, config=config) as trainer:
            trainer.train()
            return float(trainer.validate()["validation_loss"])

    study = optuna.create_study(sampler=optuna.samplers.GridSampler({"lr": [0.0001, 0.1]}))
    study.optimize(objective)

    assert study.best_params == {"lr": 0.1}


def test_what_no_trial_could_use_is_refused_at_once() -> None:
    """Arguments that no trial could use are refused before anything is submitted."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_replica'"):
        sgd.tune(**GRID, num_passes=2, num_replica=2, **CREATORS)
    with pytest.raises(TypeError, match="missing a required argument: 'model_creator'"):
        sgd.tune(**GRID, num_passes=2)
    with pytest.raises(ValueError, match="num_passes is 0"):
        sgd.tune(**GRID, num_passes=0, **CREATORS)
    with pytest.raises(TypeError, match="experiment_seed"):
        sgd.tune(**GRID, num_passes=1, seed=7, **CREATORS)
    with pytest.raises(TypeError, match="takes no notes"):
        sgd.tune(**GRID, num_passes=1, notes="wide", **CREATORS)
    with pytest.raises(NotPicklableError, match=r"'config'.*_thread.lock"):
        sgd.tune(**GRID, num_passes=1, config={"lock": threading.Lock()}, **CREATORS)
