"""Experiments are described, waited for and deleted from outside."""

from __future__ import annotations

import threading

import pytest
from client.trainings import Train

from core_sdk._home import Home
from core_sdk.client import ExperimentState, OrderBy, Tracker, TrialSortBy
from core_sdk.errors import (
    ExperimentNotFoundError,
    InvalidNameError,
    PausedError,
    TrialNotFoundError,
    TrialRunningError,
)


def test_labels_are_set_added_and_removed(tracker: Tracker, train: Train) -> None:
    """Changes to labels are seen by this handle and by new ones."""
    train()
    experiment = tracker.get_experiment(1)

    experiment.set_labels({"b", "a"})
    experiment.add_label("c")
    experiment.add_label("c")
    experiment.remove_label("a")
    experiment.remove_label("never there")

    assert experiment.labels == {"b", "c"}
    assert tracker.get_experiment(1).labels == {"b", "c"}


def test_no_two_edits_undo_each_other(tracker: Tracker, train: Train) -> None:
    """Labels that threads add at once through their own handles are all kept."""
    train()
    experiments = [tracker.get_experiment(1) for _ in range(8)]
    threads = [
        threading.Thread(target=experiment.add_label, args=(f"label {number}",))
        for number, experiment in enumerate(experiments)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert tracker.get_experiment(1).labels == {f"label {number}" for number in range(8)}


def test_what_is_no_label_changes_nothing(tracker: Tracker, train: Train) -> None:
    """Empty labels, other types and a string instead of a set are refused and change nothing."""
    train()
    experiment = tracker.get_experiment(1)
    experiment.set_labels({"a"})

    with pytest.raises(InvalidNameError, match="is empty"):
        experiment.add_label("")
    with pytest.raises(TypeError, match="not int"):
        experiment.set_labels([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not the string 'abc'"):
        experiment.set_labels("abc")

    assert tracker.get_experiment(1).labels == {"a"}


def test_the_description_is_kept_as_it_is(tracker: Tracker, train: Train) -> None:
    """A description may be any text."""
    train()
    experiment = tracker.get_experiment(1)

    experiment.set_description("Which η?\n\n'; DROP TABLE")

    assert experiment.description == "Which η?\n\n'; DROP TABLE"
    assert tracker.get_experiment(1).description == experiment.description
    with pytest.raises(TypeError, match="not NoneType"):
        experiment.set_description(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sort_by", "ascending", "descending"),
    [
        (TrialSortBy.ID, [1, 2, 3], [3, 2, 1]),
        (TrialSortBy.START_TIME, [1, 2, 3], [3, 2, 1]),
        (TrialSortBy.END_TIME, [1, 2, 3], [1, 2, 3]),
        (TrialSortBy.STATE, [3, 1, 2], [2, 1, 3]),
        (TrialSortBy.BATCHES_PROCESSED, [2, 3, 1], [1, 3, 2]),
        (TrialSortBy.RESTARTS, [1, 3, 2], [2, 1, 3]),
    ],
)
def test_trials_come_in_the_order_asked_for(
    tracker: Tracker, train: Train, sort_by: TrialSortBy, ascending: list[int], descending: list[int]
) -> None:
    """Trials without the value, such as an end time, come last in both directions."""
    first = train()
    first.report(30, loss=1.0)
    first.end()
    second = train()
    second.report(10, loss=1.0)
    second.die()
    train(folder=second.folder, resumed_steps=10).end("error")
    train().report(20, loss=1.0)
    experiment = tracker.get_experiment(1)

    up = experiment.list_trials(sort_by)
    down = experiment.list_trials(sort_by, OrderBy.DESC)
    first_down = experiment.iter_trials(sort_by, OrderBy.DESC, limit=1)

    assert [trial.trial_id for trial in up] == ascending
    assert [trial.trial_id for trial in down] == descending
    assert [trial.trial_id for trial in first_down] == descending[:1]


def test_the_first_trial_is_awaited(home: Home, tracker: Tracker, train: Train) -> None:
    """await_first_trial() returns as soon as there is a trial."""
    Home.create(home.root).find_or_create_experiment("digits")
    experiment = tracker.get_experiment("digits")
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(experiment.await_first_trial(interval=0.01).trial_id))

    waiting.start()
    train("digits")
    waiting.join(timeout=30)

    assert found == [1]


@pytest.mark.parametrize("outcome", ["completed", "error"])
def test_the_end_of_an_experiment_is_awaited(tracker: Tracker, train: Train, outcome: str) -> None:
    """wait() returns the experiment's state when its last trial ends."""
    trainings = [train(), train()]
    experiment = tracker.get_experiment(1)
    ended: list[ExperimentState] = []
    waiting = threading.Thread(target=lambda: ended.append(experiment.wait(interval=0.01)))

    waiting.start()
    trainings[0].end()
    was_waiting = waiting.is_alive()
    trainings[1].end(outcome)  # type: ignore[arg-type]
    waiting.join(timeout=30)

    assert was_waiting
    assert ended == [ExperimentState[outcome.upper()]]
    assert experiment.state is ended[0]


def test_waiting_for_a_paused_experiment_is_an_error(tracker: Tracker, train: Train) -> None:
    """Waiting for a paused experiment raises an error that is also a `ValueError`."""
    train().end("paused")
    train().end()

    with pytest.raises(PausedError, match="experiment 1 is paused") as caught:
        tracker.get_experiment(1).wait()

    assert isinstance(caught.value, ValueError)


def test_a_deleted_experiment_takes_its_trials_along(tracker: Tracker, train: Train) -> None:
    """Deleting an experiment deletes its trials and no others."""
    train("old").end()
    train("new").end()

    tracker.get_experiment("old").delete()

    assert [experiment.name for experiment in tracker.list_experiments()] == ["new"]
    assert tracker.get_trial(2).experiment_name == "new"
    with pytest.raises(TrialNotFoundError):
        tracker.get_trial(1)
    with pytest.raises(ExperimentNotFoundError):
        tracker.get_experiment("old")


def test_an_experiment_that_runs_is_not_deleted(tracker: Tracker, train: Train) -> None:
    """An experiment with a running trial is not deleted, and neither is any of its trials."""
    train().end()
    train()
    experiment = tracker.get_experiment(1)

    with pytest.raises(TrialRunningError, match="trial 2"):
        experiment.delete()

    assert [trial.trial_id for trial in experiment.list_trials()] == [1, 2]
