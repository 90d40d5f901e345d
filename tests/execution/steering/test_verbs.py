"""The verbs whose effect on records is more than one field."""

from __future__ import annotations

import re

import pytest
from home.journals import new_trial, record, report

from core_sdk._execution.steering import experiments, trials
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended
from core_sdk._home import Home, open_view
from core_sdk.errors import InvalidNameError, NameTakenError, TrialRunningError


def test_an_experiment_is_changed_in_parts(home: Home) -> None:
    """A change of an experiment leaves alone what it does not mention."""
    experiment_id = Home.create(home.root).find_or_create_experiment("old").experiment_id
    experiments.set_labels(home, experiment_id, ["a", "b"])
    experiments.describe(home, experiment_id, notes="kept")

    experiments.describe(home, experiment_id, name="new")
    experiments.label(home, experiment_id, add=["c", "a"], remove=["b"])

    found = home.experiment(experiment_id).read()
    assert (found.name, found.labels, found.notes) == ("new", ["a", "c"], "kept")
    home.find_or_create_experiment("taken")
    with pytest.raises(NameTakenError):
        experiments.describe(home, experiment_id, name="taken")


def test_labels_of_a_trial_are_added_and_removed(home: Home) -> None:
    """Labels of a trial can be added and removed, also those that it began with."""
    folder = new_trial(home)
    begun = folder.read_record()
    begun.labels = ["first"]
    folder.write_record(begun)
    record(folder)
    trials.label(home, folder.trial_id, add=["good", "best"], remove=["first"])
    trials.label(home, folder.trial_id, remove=["good"])

    with open_view(home) as view:
        assert view.trial(folder.trial_id).labels == ("best",)


def test_a_trial_has_a_generated_name_until_it_is_named(home: Home) -> None:
    """A trial has a generated name until it is named, and again when its name is emptied; notes are unaffected."""
    first, second = new_trial(home), new_trial(home)
    record(first)
    record(second)

    def names() -> list[str]:
        with open_view(home) as view:
            return [row.name for row in view.trials()]

    generated = names()
    trials.describe(home, 1, name="the good one")
    trials.describe(home, 1, notes="# Why\n\nIt is good.")
    named = names()
    trials.describe(home, 1, name="")

    assert all(re.fullmatch(rf"[a-z]+-[a-z]+-{number}", name) for number, name in enumerate(generated, 1))
    assert named == ["the good one", generated[1]]
    assert names() == generated
    with open_view(home) as view:
        assert (view.trial(1).notes, view.trial(2).notes) == ("# Why\n\nIt is good.", "")
    with pytest.raises(InvalidNameError):
        trials.describe(home, 1, name="x" * 1025)


def test_a_trial_is_archived_until_its_next_attempt(home: Home) -> None:
    """An archived trial is shown again after unarchive() or its next attempt."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0), Ended(time=1.0, outcome="paused"))

    def is_archived() -> bool:
        with open_view(home) as view:
            return view.trial(folder.trial_id).is_archived

    found = [is_archived()]
    trials.archive(home, folder.trial_id)
    found.append(is_archived())
    trials.unarchive(home, folder.trial_id)
    found.append(is_archived())
    trials.archive(home, folder.trial_id)
    record(folder, report(2, loss=0.5), attempt=2, resumed_steps=1)
    found.append(is_archived())

    assert found == [False, True, False, False]


def test_a_trial_that_runs_is_not_archived(home: Home) -> None:
    """A running trial cannot be archived, and the error says how to stop it."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0))
    lock = AliveLock(folder.alive_path(1))

    with pytest.raises(TrialRunningError, match=r"cannot archive trial 1: its attempt 1 is running\. Pause it first"):
        trials.archive(home, 1)

    lock.release()
    trials.archive(home, 1)
