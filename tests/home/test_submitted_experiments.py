"""Experiments that were submitted: their folders, and how lists show them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from core_sdk._ground.records import ExperimentRecord, ExperimentState, SearchRecord
from core_sdk._home import Home, open_view
from core_sdk._home.folders import ExperimentFolder
from core_sdk.errors import AmbiguousNameError, ExperimentNotFoundError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


def submitted(home: Home, name: str, state: ExperimentState | None = None) -> ExperimentFolder:
    """Allots a submitted experiment, with a state if a master has begun it."""
    folder = home.allot_experiment()
    folder.write(
        ExperimentRecord(
            experiment_id=folder.experiment_id,
            name=name,
            created=time.time(),
            is_submitted=True,
            search=state and SearchRecord(searcher="random", state=state, progress=0.5),
        )
    )
    return folder


def test_an_experiment_is_listed_once_a_master_has_begun_it(home: Home) -> None:
    """A submitted experiment is listed once a master has begun it, with the master's state."""
    submitted(home, "waiting")
    submitted(home, "begun", "STOPPING_CANCELED")

    with open_view(home) as view:
        rows = view.experiments()

    assert [(row.name, row.state, row.num_trials) for row in rows] == [("begun", "STOPPING_CANCELED", 0)]
    assert rows[0].search == SearchRecord(searcher="random", state="STOPPING_CANCELED", progress=0.5)


def test_a_name_of_several_experiments_is_no_answer(home: Home) -> None:
    """If several experiments have a name, an error lists their ids; unstarted ones do not count."""
    submitted(home, "digits")
    first = submitted(home, "digits", "ACTIVE")

    with open_view(home) as view:
        assert view.experiment("digits").experiment_id == first.experiment_id
    second = submitted(home, "digits", "COMPLETED")

    with open_view(home) as view:
        with pytest.raises(AmbiguousNameError, match=r"several experiments are called 'digits': .*: 2, 3$"):
            view.experiment("digits")
        assert view.experiment(second.experiment_id).state == "COMPLETED"


def test_scripts_that_name_an_experiment_never_join_a_submitted_one(home: Home) -> None:
    """A script's experiment is never a submitted one of the same name, even if the name file says so."""
    search = submitted(home, "digits", "ACTIVE")

    named = home.find_or_create_experiment("digits")

    assert named.experiment_id != search.experiment_id
    (by_name,) = (home.experiments / "names").iterdir()
    by_name.write_text(str(search.experiment_id))
    assert home.find_or_create_experiment("digits").experiment_id == named.experiment_id


def test_a_submitted_experiment_may_take_any_name(home: Home) -> None:
    """A submitted experiment may have the same name as another."""
    home.find_or_create_experiment("taken")
    folder = submitted(home, "digits", "ACTIVE")

    folder.rename("taken")

    assert folder.read().name == "taken"


def test_nothing_remains_of_a_deleted_experiment_but_its_number(home: Home) -> None:
    """Deleting a submitted experiment removes all of its files, and its id is not reused."""
    folder = submitted(home, "digits", "COMPLETED")
    for path in (folder.config_path, folder.completed_config_path, folder.submission_path, folder.events_path):
        path.write_text("content")

    folder.delete()

    assert [path.name for path in folder.path.iterdir()] == []
    assert home.allot_experiment().experiment_id == folder.experiment_id + 1
    with pytest.raises(ExperimentNotFoundError):
        folder.read_submission()
