"""Looking things up in a home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from client.trainings import Train

import core_sdk.client
from core_sdk import client, core
from core_sdk._home import Home
from core_sdk.client import Experiment, ExperimentSortBy, ExperimentState, OrderBy, Tracker
from core_sdk.errors import ExperimentNotFoundError, HomeTooNewError, TrialNotFoundError


def names(experiments: list[Experiment]) -> list[str]:
    return [experiment.name for experiment in experiments]


@pytest.fixture
def three_experiments(tracker: Tracker, train: Train) -> None:
    """Records b: completed, [x, y]; c: error, [x], two trials; a: active."""
    train("b").end()
    train("c").end("error", "ValueError: boom")
    train("c").end()
    train("a")
    tracker.get_experiment("b").set_labels({"x", "y"})
    tracker.get_experiment("c").set_labels({"x"})


def test_an_experiment_is_found_by_id_and_by_name(three_experiments: None, tracker: Tracker) -> None:
    """An experiment's id and its name give the same experiment."""
    by_id = tracker.get_experiment(2)
    by_name = tracker.get_experiment("c")

    assert (by_id.id, by_id.name) == (by_name.id, by_name.name) == (2, "c")
    assert (by_id.num_trials, by_id.state, by_id.labels) == (2, ExperimentState.ERROR, {"x"})


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["b", "c", "a"]),
        ({"experiment_ids": [3, 1, 99]}, ["b", "a"]),
        ({"experiment_ids": []}, []),
        ({"labels": ["x"]}, ["b", "c"]),
        ({"labels": ["y", "x"]}, ["b"]),
        ({"states": [ExperimentState.ACTIVE, ExperimentState.ERROR]}, ["c", "a"]),
        ({"states": []}, []),
        ({"name": "C"}, ["c"]),
        ({"labels": ["x"], "states": [ExperimentState.COMPLETED]}, ["b"]),
    ],
)
def test_experiments_are_chosen(
    three_experiments: None, tracker: Tracker, wanted: dict[str, Any], found: list[str]
) -> None:
    """Ids, labels, states and a part of the name must all match."""
    assert names(tracker.list_experiments(**wanted)) == found


@pytest.mark.parametrize(
    ("sort_by", "ascending"),
    [
        (None, ["b", "c", "a"]),
        (ExperimentSortBy.ID, ["b", "c", "a"]),
        (ExperimentSortBy.NAME, ["a", "b", "c"]),
        (ExperimentSortBy.START_TIME, ["b", "c", "a"]),
        (ExperimentSortBy.STATE, ["a", "b", "c"]),
    ],
)
def test_experiments_come_in_the_order_asked_for(
    three_experiments: None, tracker: Tracker, sort_by: ExperimentSortBy | None, ascending: list[str]
) -> None:
    """Experiments can be sorted in both directions."""
    assert names(tracker.list_experiments(sort_by)) == ascending
    assert names(tracker.list_experiments(sort_by, OrderBy.DESC)) == ascending[::-1]


def test_what_does_not_exist_is_an_error_that_names_it(tracker: Tracker) -> None:
    """An unknown object is named in the error; a missing home counts as empty and is not created."""
    with pytest.raises(TrialNotFoundError, match="no trial 5 in"):
        tracker.get_trial(5)
    with pytest.raises(ExperimentNotFoundError, match="no experiment 5 in"):
        tracker.get_experiment(5)
    with pytest.raises(ExperimentNotFoundError, match="no experiment 'digits' in"):
        tracker.get_experiment("digits")

    assert tracker.list_experiments() == []
    assert not tracker.home.root.exists()


@pytest.mark.parametrize("argument", ["users", "project_id"])
def test_an_argument_without_meaning_here_is_refused_by_name(argument: str) -> None:
    """An argument without a meaning here is refused by its name."""
    with pytest.raises(TypeError, match=argument):
        client.list_experiments(**{argument: None})


def test_functions_follow_the_environment(
    home: Home, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of a function reads the home that is set in the environment at that time."""
    train("here").report(1, loss=0.5)

    assert names(client.list_experiments()) == ["here"]
    assert client.get_experiment(1).name == "here"
    assert client.get_trial(1).experiment_name == "here"
    assert [read.metrics for read in client.iter_trials_metrics([1], "training")] == [{"loss": 0.5}]
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "elsewhere"))
    assert client.list_experiments() == []
    monkeypatch.setenv("CORE_SDK_HOME", str(home.root))
    assert names(client.list_experiments()) == ["here"]


def test_a_tracker_reads_the_home_that_it_was_given(home: Home, train: Train, tmp_path: Path) -> None:
    """A Tracker reads the home that it was given, whatever the environment says."""
    train("here")

    assert names(Tracker(str(home.root)).list_experiments()) == ["here"]
    assert Tracker(tmp_path / "elsewhere").list_experiments() == []


def test_a_home_of_a_newer_version_is_refused(home: Home) -> None:
    """A home of a newer version is refused when the Tracker is made."""
    home.root.mkdir()
    (home.root / "home.json").write_text(json.dumps({"format": 99, "sdk_version": "9"}))

    with pytest.raises(HomeTooNewError, match="format 99"):
        Tracker()


def test_what_was_recorded_since_the_last_question_is_seen(tracker: Tracker, train: Train) -> None:
    """New records are seen after reload(); until then a handle does not change."""
    training = train()
    training.report(10, loss=0.5)
    trial = tracker.get_trial(1)
    training.report(20, loss=0.25)

    before = trial.steps_completed
    trial.reload()

    assert (before, trial.steps_completed) == (10, 20)


def test_a_login_is_not_needed(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A script that logs in goes on, with a warning that says where records are read, and no password."""
    client.login()
    assert not caplog.records

    client.login("https://cluster:8080")
    client.Determined(user="me", password="secret", noverify=True)

    assert f"(ignored: master): records are read from {home.root}. Choose another" in caplog.text
    assert "(ignored: user, password, noverify)" in caplog.text
    assert "secret" not in caplog.text


def test_the_predecessors_name_is_the_same_module() -> None:
    """The predecessor's import path gives the same module."""
    import core_sdk.experimental.client as by_path
    from core_sdk.experimental import client as by_name
    from core_sdk.experimental.client import Trial

    assert by_path is by_name is core_sdk.client
    assert Trial is core_sdk.client.Trial


def test_importing_the_client_loads_no_database() -> None:
    """Importing the client imports no database and no heavy library."""
    script = "import sys, core_sdk.experimental.client; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["sqlite3", "torch", "google.cloud", "requests", "psutil", "yaml", "pandas", "numpy"]

    process = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True)

    assert process.stdout.strip() == "[]"


def test_all_trials_and_checkpoints_of_a_home_are_listed(home: Home) -> None:
    """list_trials() and list_checkpoints() cover all experiments of the home."""
    assert (client.list_trials(), client.list_checkpoints()) == ([], [])
    for name in ("first", "second"):
        with core.init(name=name) as context, context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "weights").touch()

    assert [trial.id for trial in client.list_trials()] == [1, 2]
    assert [checkpoint.trial_id for checkpoint in client.list_checkpoints()] == [2, 1]
