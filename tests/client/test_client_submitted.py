"""Experiments are submitted, steered and read from Python."""

from __future__ import annotations

import json
import sys
import tarfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from client.trainings import Train
from processes import wait_for

from core_sdk import client
from core_sdk._home import Home
from core_sdk.client import ExperimentSortBy, ExperimentState, OrderBy, TrialState
from core_sdk.errors import ExperimentError, InvalidConfigError, MasterError, PausedError

TRAIN = """
import time
from core_sdk import core

with core.init() as context:
    x = context.info.trial.hparams["x"]
    for step in (1, 2):
        context.train.report_validation_metrics(steps_completed=step, metrics={"loss": x / step})
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "x").write_text(str(x))
    print("trained", flush=True)
    while context.info.trial.hparams["waits"] and not context.preempt.should_preempt():
        time.sleep(0.02)
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A directory with a script that trains for a moment, or until it is stopped."""
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text(textwrap.dedent(TRAIN))
    return directory


def config(waits: bool = False, **changes: Any) -> dict[str, Any]:
    """Returns the configuration of a grid search with two trials."""
    return {
        "name": "grid",
        "labels": ["tests"],
        "entrypoint": [sys.executable, "train.py"],
        "hyperparameters": {"x": {"type": "categorical", "vals": [2.0, 1.0]}, "waits": waits},
        "searcher": {"name": "grid", "metric": "loss", "max_concurrent_trials": 2},
        "max_restarts": 0,
        **changes,
    }


@pytest.mark.usefixtures("master")
def test_a_search_runs_to_its_end_and_has_a_best_checkpoint(code: Path) -> None:
    """A search that is created from a mapping has trials, checkpoints and a config like any other experiment."""
    experiment = client.create_experiment(config(), code)

    first = experiment.await_first_trial()
    state = experiment.wait(interval=0.05)

    assert state is experiment.state is ExperimentState.COMPLETED
    assert (experiment.name, experiment.labels, experiment.progress) == ("grid", {"tests"}, 1.0)
    assert [trial.hparams["x"] for trial in experiment.list_trials()] == [2.0, 1.0]
    assert first.id in {trial.id for trial in experiment.list_trials()}
    best = experiment.top_checkpoint()
    assert (best.get_trial().hparams["x"], best.steps_completed) == (1.0, 2)
    assert experiment.list_checkpoints()[0].uuid == best.uuid
    assert experiment.config["searcher"]["name"] == "grid"
    assert experiment.config["max_restarts"] == 0
    reports = client.iter_trials_metrics([trial.id for trial in experiment.list_trials()], "validation")
    assert [report.metrics["loss"] for report in reports] == [2.0, 1.0, 1.0, 0.5]


@pytest.mark.usefixtures("master")
@pytest.mark.parametrize("form", ["path", "text of a path"])
def test_a_configuration_is_a_file_too(code: Path, tmp_path: Path, form: str) -> None:
    """A configuration may be given as a file, with overrides, and included files are packed next to the script."""
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(config()))
    extra = tmp_path / "extra.txt"
    extra.touch()
    given = path if form == "path" else str(path)

    experiment = client.create_experiment(given, code, [extra], overrides=["name=other"], is_paused=True)

    assert (experiment.name, experiment.state) == ("other", ExperimentState.PAUSED)
    archive = experiment.download_code(tmp_path / "download")
    assert Path(archive).name == f"exp-{experiment.id}_model_def.tar.gz"
    with tarfile.open(archive) as opened:
        assert {"train.py", "extra.txt"} <= set(opened.getnames())


@pytest.mark.usefixtures("master")
def test_an_experiment_is_paused_and_goes_on(code: Path) -> None:
    """A paused experiment can be continued, and waiting for it raises an error."""
    experiment = client.create_experiment(config(waits=True), code)
    wait_for(lambda: [trial.num_attempts for trial in experiment.list_trials()] == [1, 1])

    experiment.pause()
    was = experiment.state
    with pytest.raises(PausedError, match="core-sdk experiment activate"):
        experiment.wait(interval=0.05)
    wait_for(lambda: not any(trial.state is TrialState.ACTIVE for trial in experiment.list_trials()))
    experiment.activate()

    assert (was, experiment.state) == (ExperimentState.PAUSED, ExperimentState.ACTIVE)
    wait_for(lambda: [trial.num_attempts for trial in experiment.list_trials()] == [2, 2])


@pytest.mark.usefixtures("master")
@pytest.mark.parametrize("ending", ["cancel", "kill"])
def test_an_experiment_is_ended_archived_and_deleted(code: Path, ending: str) -> None:
    """An experiment can be archived or deleted only after its end."""
    experiment = client.create_experiment(config(waits=True), code)
    experiment.await_first_trial()
    with pytest.raises(ExperimentError, match="only what has ended can be archived"):
        experiment.archive()
    with pytest.raises(ExperimentError, match="`core-sdk experiment cancel` ends it"):
        experiment.delete()

    getattr(experiment, ending)()
    state = experiment.wait(interval=0.05)

    assert state is ExperimentState.CANCELED
    assert {trial.state for trial in experiment.list_trials()} == {TrialState.CANCELED}
    with pytest.raises(MasterError, match="has ended"):
        experiment.activate()
    experiment.archive()
    assert client.get_experiment(experiment.id).archived
    experiment.unarchive()
    assert not experiment.archived
    experiment.delete()
    assert client.list_experiments() == []


@pytest.mark.usefixtures("master")
def test_an_experiment_that_was_removed_by_hand_ends_no_master(home: Home, code: Path) -> None:
    """A removed experiment folder stops its trials but neither the master nor other experiments."""
    removed = client.create_experiment(config(waits=True), code)
    removed.await_first_trial()
    other = client.create_experiment(config(), code)
    trials = [home.trial(trial.trial_id) for trial in removed.list_trials()]
    folder = home.experiment(removed.id).path
    folder.rename(folder.with_name("away"))
    for trial in trials:
        trial.request_stop(1, "the test")

    assert other.wait(interval=0.05) is ExperimentState.COMPLETED
    wait_for(lambda: all(trial.running_attempt() is None for trial in trials))


@pytest.mark.usefixtures("master")
def test_one_trial_of_a_search_is_killed(code: Path) -> None:
    """Killing one trial of a search leaves the other trials running."""
    experiment = client.create_experiment(config(waits=True), code)
    wait_for(lambda: len(list(experiment.iter_trials())) == 2)
    first, second = experiment.list_trials()

    first.kill()

    wait_for(lambda: client.get_trial(first.id).state is TrialState.CANCELED)
    assert client.get_trial(second.id).state is TrialState.ACTIVE
    assert experiment.state is ExperimentState.ACTIVE


@pytest.mark.usefixtures("master")
def test_submitted_experiments_are_listed_beside_others(code: Path, train: Train) -> None:
    """Submitted and other experiments are listed together, filtered and sorted."""
    train("by hand").end()
    paused = client.create_experiment(config(), code, is_paused=True)
    done = client.create_experiment(config(name="done"), code)
    done.wait(interval=0.05)

    def ids(**question: Any) -> list[int]:
        return [experiment.id for experiment in client.list_experiments(**question)]

    assert ids() == [1, paused.id, done.id]
    assert ids(states=[ExperimentState.PAUSED]) == [paused.id]
    assert ids(name="DON") == [done.id]
    assert ids(labels=["tests"]) == [paused.id, done.id]
    assert ids(sort_by=ExperimentSortBy.PROGRESS, order_by=OrderBy.DESC) == [done.id, paused.id, 1]
    assert ids(sort_by=ExperimentSortBy.END_TIME) == [done.id, 1, paused.id]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"searcher": {"name": "grid", "metrik": "loss"}}, InvalidConfigError, "metrik"),
        ({"hyperparameters": {"x": object()}}, TypeError, "YAML cannot write"),
    ],
)
def test_a_bad_configuration_creates_nothing(
    code: Path, given: Mapping[str, Any], error: type[Exception], words: str
) -> None:
    """A bad configuration is refused before a master is asked."""
    with pytest.raises(error, match=words):
        client.create_experiment(config() | dict(given), code)

    assert client.list_experiments() == []


def test_what_was_not_submitted_has_no_searcher_to_steer(train: Train) -> None:
    """An experiment that was not submitted cannot be activated or canceled; the error has the alternative."""
    train()
    experiment = client.get_experiment(1)

    for call, advice in ((experiment.activate, "core-sdk trial resume"), (experiment.cancel, "pausing it stops")):
        with pytest.raises(ExperimentError, match=f"was not submitted.*{advice}"):
            call()


def test_reading_starts_no_master(code: Path, home: Any, request: pytest.FixtureRequest) -> None:
    """The results of a search can be read without a master."""
    from core_sdk._execution.experiments.calling import is_master_running
    from core_sdk._execution.master.local import local_master
    from core_sdk._home import Home

    with local_master(Home.create(home.root), 2):
        experiment = client.create_experiment(config(), code)
        experiment.wait(interval=0.05)

    again = client.get_experiment(experiment.id)

    assert (again.state, again.wait()) == (ExperimentState.COMPLETED,) * 2
    assert json.loads(json.dumps(again.config))["name"] == "grid"
    assert len(again.list_checkpoints()) == 4
    assert not is_master_running(home.root)
