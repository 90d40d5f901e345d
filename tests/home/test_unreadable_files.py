"""What this user may not read in a home is named and left out, and stops nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from interfaces.cli.recorded import new_attempt, new_trial, store
from powerless import powerless
from promises import promise

from core_sdk import client
from core_sdk._execution.master._standstill import find_held
from core_sdk._ground.records import TrialDescribed
from core_sdk._home import Home, open_view
from core_sdk._home.attempts.continuation import find_recorded
from core_sdk._home.attempts.ending import further_trials
from core_sdk._home.attempts.starting import requested_trials
from core_sdk._home.deletion.collection import Request, collect
from core_sdk._home.index import Index
from core_sdk._home.moving.merging import merge
from core_sdk._home.moving.relocation import adopt
from core_sdk._interfaces.cli._app import app
from core_sdk.errors import RecordDamagedError

UNREADABLE = ["runs/2", "runs/2/trial.json", "runs/2/1.journal", "runs/2/changes.journal"]


@pytest.fixture(params=UNREADABLE)
def unreadable(home: Home, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Records three trials, and forbids everybody to read a part of the second."""
    Home.create(home.root)
    for number in (1, 2, 3):
        training = new_attempt(new_trial(home, experiment=f"of {number}"))
        training.report(1, loss=0.5)
        store(training, f"saved-{number}", 1)
        training.end()
    home.folder(2).append_change(TrialDescribed(time=1.0, notes="hidden"))
    path = home.root / str(request.param)
    path.chmod(0)
    with powerless():
        yield path
    path.chmod(0o700)


@promise("damaged-records-skipped")
def test_every_reader_leaves_it_out_and_names_it(
    home: Home, unreadable: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists, descriptions, metrics and checkpoints of all other trials are there, and one warning names what is not."""
    with caplog.at_level(logging.WARNING), open_view(home) as view:
        assert [row.trial_id for row in view.trials()] == [1, 3]
        assert {row.storage_id for row in view.checkpoints()} == {"saved-1", "saved-3"}
        assert [report.metrics for report in view.reports(1)] == [{"loss": 0.5}]
        assert view.left_out() == ["runs/2"]
    (warning,) = caplog.records
    assert "runs/2 is left out" in warning.getMessage() and "ermission denied" in warning.getMessage()
    assert [trial.id for trial in client.Tracker(home.root).list_trials()] == [1, 3]
    Index.rebuild(home)
    for arguments in (["trial", "list"], ["trial", "describe", "1"], ["trial", "metrics", "1"], ["checkpoint", "list"]):
        app(arguments, standalone_mode=False)
    said = capsys.readouterr()
    assert "saved-3" in said.out and "cannot be written" not in said.err + caplog.text


def test_what_goes_through_all_trials_goes_on(home: Home, unreadable: Path, tmp_path: Path) -> None:
    """A search, a resume, a merge, an adoption and a master pass over a trial that they may not read."""
    assert requested_trials(home, 1) == {}
    assert find_recorded(home, home.folder(3), "saved-1") is not None
    assert further_trials(home.folder(1), 1) == {}
    assert find_held(home, 1) == []
    adopt(home)

    merged = merge(Home.create(tmp_path / "other"), home)

    assert merged.taken == {1: 1, 3: 3} or merged.taken == {1: 1, 3: 2}
    assert [one.partition(": ")[0] for one in merged.left] == ["trial 2"]


def test_nothing_is_deleted_that_it_may_need(home: Home, unreadable: Path) -> None:
    """A policy deletes no checkpoint if a trial cannot be read that may have begun with it, and says so."""
    request = Request(policy={"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0})
    try:
        done = collect(home, request)
    except RecordDamagedError as error:
        assert "ermission denied" in str(error)
    else:
        assert done.deleted == ()


def test_an_experiment_is_named_likewise(home: Home) -> None:
    """An experiment whose folder cannot be read is left out, and its trials and all others are there."""
    for name in ("first", "second"):
        new_attempt(new_trial(home, experiment=name)).end()
    folder = home.experiments / "2"
    folder.chmod(0)

    with powerless(), open_view(home) as view:
        assert [row.trial_id for row in view.trials()] == [1, 2]
        assert view.left_out() == ["experiments/2/experiment.json"]
        assert home.find_or_create_experiment("first").experiment_id == 1
        with pytest.raises(RecordDamagedError, match="ermission denied"):
            home.experiment(2).read()

    folder.chmod(0o700)


def test_a_home_that_cannot_be_read_is_named_and_not_its_index(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """If the folder of all trials cannot be read, the error names it, and nothing is said of the index."""
    new_attempt(new_trial(home)).end()
    home.runs.chmod(0)

    with powerless(), pytest.raises(PermissionError, match="runs"), open_view(home):
        pass

    home.runs.chmod(0o700)
    assert caplog.records == []
