"""What scripts of the predecessor's ask its client, and what they are told where there is nothing to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from client.trainings import Train, Training
from interfaces.cli.recorded import store as store_checkpoint

from core_sdk import client
from core_sdk._ground.records import ProgressReported, RetentionPolicy, SearcherMetric
from core_sdk._home import Home
from core_sdk.client import OrderBy, Tracker, TrialSortBy
from core_sdk.errors import AttemptError, NameTakenError, NoMasterError


def store(training: Training, storage_id: str, steps: int, **validation: float | str) -> None:
    """Stores a checkpoint and reports the validation of its step."""
    store_checkpoint(training, storage_id, steps)
    if validation:
        training.report(steps, "validation", **validation)


def choose_metric(home: Home, name: str, *, smaller_is_better: bool) -> None:
    with home.experiment(1).edit() as record:
        record.searcher_metric = SearcherMetric(name=name, smaller_is_better=smaller_is_better)


def uuids(checkpoints: list[client.Checkpoint]) -> list[str]:
    return [checkpoint.uuid for checkpoint in checkpoints]


def test_the_best_checkpoint_comes_first_where_the_experiment_says_what_is_best(
    home: Home, tracker: Tracker, train: Train
) -> None:
    """With a searcher metric, checkpoints are listed from the best to the worst."""
    training = train()
    for storage_id, steps, accuracy in (("a", 10, 0.7), ("b", 20, 0.9), ("c", 30, 0.8)):
        store(training, storage_id, steps, accuracy=accuracy)

    choose_metric(home, "accuracy", smaller_is_better=False)
    best_first = uuids(tracker.get_experiment(1).list_checkpoints())
    choose_metric(home, "accuracy", smaller_is_better=True)
    smallest_first = uuids(tracker.get_trial(1).list_checkpoints(max_results=2))

    assert best_first == ["b", "c", "a"]
    assert smallest_first == ["a", "c"]


def test_top_checkpoints_are_the_best_of_different_trials(home: Home, tracker: Tracker, train: Train) -> None:
    """top_n_checkpoints() has one checkpoint per trial, by the given or the searcher's metric."""
    first, second = train(), train()
    store(first, "a", 10, loss=0.3, accuracy=0.7)
    store(first, "b", 20, loss=0.2, accuracy=0.8)
    store(second, "c", 10, loss=0.4, accuracy=0.9)
    choose_metric(home, "loss", smaller_is_better=True)
    experiment, trial = tracker.get_experiment(1), tracker.get_trial(1)

    assert uuids(experiment.top_n_checkpoints(5)) == ["b", "c"]
    assert uuids(experiment.top_n_checkpoints(5, sort_by="accuracy", smaller_is_better=False)) == ["c", "b"]
    assert experiment.top_checkpoint().uuid == "b"
    assert trial.top_checkpoint("loss").uuid == trial.select_checkpoint(best=True).uuid == "b"
    assert trial.select_checkpoint(best=True, sort_by="accuracy", smaller_is_better=True).uuid == "a"
    assert trial.select_checkpoint(latest=True).uuid == "b"
    assert trial.select_checkpoint(uuid="c").uuid == "c"
    assert uuids(trial.list_checkpoints(client.CheckpointSortBy.SEARCHER_METRIC, OrderBy.DESC)) == ["a", "b"]


def test_what_is_best_is_never_guessed(tracker: Tracker, train: Train) -> None:
    """An unknown metric, or one without a known direction, is an error and never guessed."""
    store(train(), "a", 10, loss=0.5)
    trial = tracker.get_trial(1)

    with pytest.raises(ValueError, match="no searcher metric: name the metric"):
        trial.top_checkpoint()
    with pytest.raises(ValueError, match="a smaller 'loss' is better: give smaller_is_better"):
        trial.top_checkpoint("loss")
    with pytest.raises(ValueError, match="no validation metric is called 'los'; there are loss"):
        trial.list_checkpoints("los", OrderBy.ASC)
    with pytest.raises(ValueError, match="exactly one of latest, best and uuid"):
        trial.select_checkpoint(latest=True, best=True)
    with pytest.raises(ValueError, match="trial 2 has no checkpoint"):
        tracker.get_trial(train().trial_id).top_checkpoint("loss", smaller_is_better=True)


def test_a_checkpoint_without_a_number_is_never_the_best(home: Home, tracker: Tracker, train: Train) -> None:
    """A checkpoint without validation, or with NaN, is never the best."""
    first, second = train(), train()
    store(first, "a", 10, loss="NaN")
    store(second, "b", 10)
    second.report(20, "validation", loss=0.5)
    choose_metric(home, "loss", smaller_is_better=True)

    with pytest.raises(ValueError, match="no checkpoint of experiment 1 was validated with a number for 'loss'"):
        tracker.get_experiment(1).top_checkpoint()
    store(second, "c", 20, loss=0.5)
    assert uuids(tracker.get_experiment(1).top_n_checkpoints(5)) == ["c"]


def test_trials_are_sorted_by_what_they_validated(home: Home, tracker: Tracker, train: Train) -> None:
    """Trials are sorted by the best or latest value of the searcher metric, or by duration."""
    for losses in ((0.5, 0.2, 0.4), (0.3, 0.6), (0.1, 0.5)):
        training = train()
        for step, loss in enumerate(losses):
            training.report(step, "validation", loss=loss)
        training.end()
    train()
    experiment = tracker.get_experiment(1)
    with pytest.raises(ValueError, match="no searcher metric"):
        experiment.list_trials(TrialSortBy.BEST_VALIDATION_METRIC)

    choose_metric(home, "loss", smaller_is_better=True)
    best = [trial.id for trial in experiment.list_trials(TrialSortBy.BEST_VALIDATION_METRIC, OrderBy.ASCENDING)]
    latest = [trial.id for trial in experiment.list_trials(TrialSortBy.LATEST_VALIDATION_METRIC, OrderBy.DESCENDING)]

    assert best == [3, 1, 2, 4]
    assert latest == [2, 3, 1, 4]
    assert len(experiment.list_trials(TrialSortBy.DURATION)) == 4


def test_an_experiment_has_a_config(home: Home, tracker: Tracker, train: Train) -> None:
    """The config has what is known of the searcher, storage and hyperparameters."""
    train("digits", hparams={"lr": 0.1})
    before = tracker.get_experiment(1).config
    with home.experiment(1).edit() as record:
        record.searcher_metric = SearcherMetric(name="loss")
        record.retention = RetentionPolicy(save_trial_best=2)

    config = tracker.get_experiment(1).config

    assert (before["searcher"], before["checkpoint_storage"]) == ({"name": "single"}, {})
    assert config["name"] == "digits"
    assert config["hyperparameters"] == {"lr": {"type": "const", "val": 0.1}}
    assert config["searcher"] == {"name": "single", "metric": "loss", "smaller_is_better": True}
    assert config["checkpoint_storage"] == {
        "save_experiment_best": 0,
        "save_trial_best": 2,
        "save_trial_latest": 1,
        "keep_every": None,
    }


def test_the_progress_of_an_experiment_is_its_trials(tracker: Tracker, train: Train) -> None:
    """An experiment's progress is the mean of its trials'."""
    silent = tracker.get_trial(train().trial_id).get_experiment().progress
    for progress in (0.5, 1.0):
        train().append(ProgressReported(time=1.0, progress=progress))

    assert silent is None
    assert tracker.get_experiment(1).progress == 0.75


def test_an_experiment_is_renamed(home: Home, tracker: Tracker, train: Train) -> None:
    """A renamed experiment is found by its new name, and its old name is free."""
    train("digits")
    train("letters")
    experiment = tracker.get_experiment("digits")

    experiment.set_name("numbers")
    experiment.set_notes("read by η")

    assert (experiment.name, experiment.notes) == ("numbers", "read by η")
    assert tracker.get_experiment("numbers").id == tracker.get_trial(1).experiment_id == 1
    assert tracker.get_trial(1).experiment_name == "numbers"
    assert home.find_or_create_experiment("numbers").experiment_id == 1
    assert home.find_or_create_experiment("digits").experiment_id == 3
    with pytest.raises(NameTakenError, match="another experiment is called 'letters'"):
        experiment.set_name("letters")
    experiment.set_name("numbers")
    assert tracker.get_experiment("numbers").id == 1


def test_all_trials_of_an_experiment_are_paused(tracker: Tracker, train: Train) -> None:
    """pause() asks all running trials to stop, and raises if there is none."""
    first, second = train(), train()
    first.end()
    experiment = tracker.get_experiment(1)

    experiment.pause()
    second.end("paused")

    assert second.folder.read_stop_request(1) is not None
    assert first.folder.read_stop_request(1) is None
    with pytest.raises(AttemptError, match="none of its trials is running"):
        experiment.pause()


def test_lines_are_chosen_by_their_level(tracker: Tracker, train: Train) -> None:
    """A line without one is at INFO, and a launcher's prefix does not hide it."""
    training = train()
    lines = ["DEBUG: [1] root: a\n", "printed\n", "[rank=1] WARNING: [2] root: b\n", "ERROR: [1] root: c\n"]
    training.folder.log_path(1).write_text("".join(lines))
    training.end()
    trial = tracker.get_trial(1)

    assert list(trial.iter_logs(min_level=client.LogLevel.DEBUG)) == lines
    assert list(trial.logs(min_level=client.LogLevel.INFO)) == lines[1:]
    assert list(trial.iter_logs(min_level=client.LogLevel.WARNING, head=1)) == lines[2:3]
    assert list(trial.iter_logs(min_level=client.LogLevel.ERROR, search_text="B")) == []


def test_streams_of_metrics_are_iterators_of_them(tracker: Tracker, train: Train) -> None:
    """The older stream functions return the same reports as the iterators."""
    training = train()
    training.report(1, loss=0.5)
    training.report(1, "validation", loss=0.6)
    trial = tracker.get_trial(1)

    assert list(trial.stream_training_metrics()) == list(trial.stream_metrics("training"))
    assert list(trial.stream_validation_metrics()) == list(client.stream_trials_validation_metrics([1]))
    assert list(client.stream_trials_training_metrics([1])) == list(client.stream_trials_metrics([1], "training"))
    assert [report.group for report in trial.iter_metrics()] == ["training", "validation"]


def test_determined_is_the_home_of_this_environment(home: Home, train: Train, caplog: pytest.LogCaptureFixture) -> None:
    """Determined() reads the home of the environment and ignores a master's address."""
    train()

    assert client.Determined().get_trial(1).id == 1
    assert client.Determined().home.root == home.root
    assert client.Determined(master="localhost:8080").home.root == home.root
    assert "ignored: master" in caplog.text


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: client.whoami(), "There are no users"),  # type: ignore[attr-defined]
        (lambda: client.list_workspaces(), "There are no workspaces"),  # type: ignore[attr-defined]
        (lambda: client.Determined().create_user("ada", True), "There are no users"),  # type: ignore[attr-defined]
        (lambda: client.get_experiment(1).move_to_project("a", "b"), "There are no projects"),
    ],
)
def test_what_has_no_meaning_here_says_so(call: Callable[[], Any], advice: str, train: Train) -> None:
    """A call without a meaning here raises an error with the alternative."""
    train()

    with pytest.raises(NoMasterError, match=f"is not available here.*{advice}"):
        call()
    with pytest.raises(AttributeError):
        client.nonsense  # type: ignore[attr-defined] # noqa: B018
