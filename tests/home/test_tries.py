"""Trials that differ only in their seeds are one try, with a value and a place among the others."""

from __future__ import annotations

import pytest
from home.tries import study, trials_of_try

from core_sdk._ground.records import StudyRecord
from core_sdk._home import Home
from core_sdk._home.finding.noise import Sample
from core_sdk._home.finding.tries import study_here


def test_a_try_has_the_values_of_its_trials_that_have_ended_well() -> None:
    """A failed trial has no value; one whose time was over has."""
    late = trials_of_try(3, [0.7], try_id=1, seed=2, state="PAUSED", reason="its time limit of 90 s was over")

    tries = study(trials_of_try(1, [0.8, None]), late)

    assert tries.by_id[1].sample == Sample((0.8, 0.7))
    assert tries.by_id[1].state == "failed"


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("ACTIVE", "", "running"),
        ("QUEUED", "waits for slots", "queued"),
        ("COMPLETED", "", "ended"),
        ("CANCELED", "its time limit of 1 s was over", "ended"),
        ("PAUSED", "behind its parent 1 at step 7", "stopped"),
        ("CANCELED", "killed by ann", "stopped"),
        ("ERROR", "killed by SIGKILL", "failed"),
    ],
)
def test_a_try_has_the_state_of_its_trials(state: str, reason: str, expected: str) -> None:
    """A stop by the time limit is an end, any other stop is none."""
    assert study(trials_of_try(1, [0.8], state=state, reason=reason)).by_id[1].state == expected


def test_the_best_try_is_none_that_was_discarded_or_has_failed() -> None:
    """The best mean counts, and what leads to it is known."""
    tries = study(
        trials_of_try(1, [0.80, 0.82]),
        trials_of_try(3, [0.85, 0.87], parent=1),
        trials_of_try(5, [0.99, 0.99], parent=3, verdict="discard"),
        trials_of_try(7, [0.98, None], parent=3),
        trials_of_try(9, [0.84, 0.86], parent=3),
    )

    assert tries.best is tries.by_id[3]
    assert [one.try_id for one in tries.line_of(tries.best)] == [1, 3]


def test_a_trial_leads_to_its_try() -> None:
    """Any trial of a try names it."""
    tries = study(trials_of_try(1, [0.8, 0.9]), trials_of_try(3, [0.8, 0.9]))

    assert tries.of_trial(4) is tries.by_id[3]


def test_the_study_of_a_directory_is_that_of_the_nearest_one_above(home: Home) -> None:
    """Of several in one directory the newest counts, and a record that is damaged is none."""
    home, ids = Home.create(home.root), {}
    for name, directory in (
        ("far", "/projects"),
        ("near", "/projects/digits"),
        ("newer", "/projects/digits"),
        ("damaged", "/projects"),
    ):
        folder = home.find_or_create_experiment(name)
        with folder.edit() as record:
            record.study = StudyRecord(directory=directory, best_by="min.loss")
        ids[name] = folder.experiment_id
    home.experiment(ids["damaged"]).record_path.write_text("{")

    assert study_here(home, "/projects/digits/deep") == ids["newer"]
    assert study_here(home, "/projects/digits2") == ids["far"]
    assert study_here(home, "/elsewhere") is None
