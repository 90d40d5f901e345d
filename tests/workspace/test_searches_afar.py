"""The searches of a home arrive in a workspace, which shows them and never carries them out."""

from __future__ import annotations

import shutil
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
from execution.master.searches import await_end, submit_text
from home.journals import new_trial
from workspace.workspaces import pushed, served, served_by_lab, train

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.following import Follower
from core_sdk._execution.experiments.picture import read_picture
from core_sdk._execution.experiments.protocol import Down, GetStatus, Want
from core_sdk._execution.experiments.reviving import go_on_here
from core_sdk._execution.experiments.submission import continue_in_place
from core_sdk._execution.master.journaled import journaled_status
from core_sdk._execution.steering import experiments, trials
from core_sdk._home import Home, open_view
from core_sdk._home.moving.archive import export_trials, import_trials
from core_sdk._home.moving.merging import merge
from core_sdk._workspace.files import CONFIG, EVENTS, SEARCH, SUBMISSION
from core_sdk._workspace.receiving import RecordReceiver
from core_sdk._workspace.wire import Extent, piece_of
from core_sdk.errors import ExperimentError, MasterRefusedError, TrialNotRunningError

GRID = f"""
name: digits
description: finds a rate
entrypoint: [{sys.executable}, train.py]
hyperparameters:
  lr: {{type: categorical, vals: [0.3, 0.1, 0.2]}}
  password: {{type: const, val: hush-hush}}
environment: {{environment_variables: [SPECIAL=s3cret]}}
searcher: {{name: grid, metric: loss, max_concurrent_trials: 1}}
"""

TRAIN = """
from core_sdk import core

with core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": context.info.trial.hparams["lr"]})
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Home:
    """A workspace with a trial and an experiment of its own, so that numbers differ."""
    workspace = Home.create(tmp_path / "lab")
    for name in ("others", "more"):
        workspace.find_or_create_experiment(name)
    for _ in range(4):
        workspace.create_trial()
    return workspace


@pytest.fixture
def searched(home: Home, tmp_path: Path) -> int:
    """Returns a search that has ended."""
    experiment_id = submit_text(home, tmp_path, GRID, TRAIN)
    assert await_end(home, experiment_id).state == "COMPLETED"
    call(home.root, Down())
    return experiment_id


def test_a_search_is_shown_as_in_its_home(home: Home, workspace: Home, searched: int) -> None:
    """State, events, best trial and configuration are those of the home, with the trials' numbers of the workspace."""
    with served(workspace) as url:
        numbers = pushed(home, url).pushed.numbers
        again = pushed(home, url).pushed

    assert again.num_bytes == 0 and again.problems == []
    with open_view(home) as view, open_view(workspace) as there:
        row, told = view.experiment(searched), there.experiment(3)
        assert told.search is not None and row.search is not None
        assert (told.state, told.search.searcher, told.search.num_trials) == ("COMPLETED", "grid", 3)
        assert told.num_trials == 3
    here, seen = read_picture(Follower(home, searched)), read_picture(Follower(workspace, 3))
    assert [each.trial_id for each in seen.trials] == [numbers[each.trial_id] for each in here.trials]
    assert [each.hparams["lr"] for each in seen.trials] == [each.hparams["lr"] for each in here.trials]
    assert seen.best_trial == numbers[here.best_trial or 0]
    assert workspace.experiment(3).events_path.read_bytes() == home.experiment(searched).events_path.read_bytes()
    assert b"finds a rate" in workspace.experiment(3).read_original_config()


def test_a_lab_shows_it(home: Home, workspace: Home, tmp_path: Path, searched: int) -> None:
    """The routes of the search, its configuration, its code and its report answer in a lab."""
    with served(workspace) as url:
        numbers = pushed(home, url).pushed.numbers

    with served_by_lab(workspace, tmp_path / "served") as (url, token):

        def ask(path: str) -> Any:
            answer = requests.get(
                f"{url}/api/v1/experiments/{path}", headers={"Authorization": f"Bearer {token}"}, timeout=30
            )
            assert answer.status_code == 200, answer.text
            return answer.json()

        search, configuration, code = ask("3/search"), ask("3/configuration"), ask("3/code")
        report = ask("3/report")

    assert sorted(each["trial_id"] for each in search["trials"]) == sorted(numbers.values())
    assert configuration["completed"]["searcher"]["name"] == "grid"
    assert [each["name"] for each in code["files"]] == ["train.py"]
    assert "digits" in str(report)


def test_secrets_of_its_configuration_stay_at_home(home: Home, workspace: Home, searched: int) -> None:
    """Neither variables nor secret hyperparameters arrive in the files of the experiment."""
    with served(workspace) as url:
        pushed(home, url)

    files = [path.read_bytes() for path in workspace.experiment(3).path.iterdir() if path.is_file()]
    assert not any(b"hush-hush" in content or b"s3cret" in content for content in files)
    assert workspace.experiment(3).read_submission().environment == {}


VERBS: dict[str, Callable[[Home], object]] = {
    "pause": lambda home: experiments.pause(home, 3, "test"),
    "activate": lambda home: experiments.activate(home, 3, "test"),
    "cancel": lambda home: experiments.cancel(home, 3, "test"),
    "kill": lambda home: experiments.kill(home, 3, "test"),
    "set_slots": lambda home: experiments.set_slots(home, 3, priority=1),
    "move": lambda home: experiments.move(home, 3, ahead_of=2),
    "continue": lambda home: continue_in_place(home, 3),
    "a request to the master": lambda home: call(home.root, Want(experiment_id=3, state="ACTIVE")),
}


def goes_on(home: Home, workspace: Home, experiment_id: int) -> None:
    """Makes the search one that goes on, as far as its record says, and sends it."""
    with home.experiment(experiment_id).edit() as record:
        assert record.search is not None
        record.search = msgspec.structs.replace(record.search, state="ACTIVE", num_running=1, ended=None)
    with served(workspace) as url:
        pushed(home, url)
    found = workspace.experiment(3).read().search
    assert found is not None and found.state == "ACTIVE"


def test_nothing_that_was_received_is_carried_out(home: Home, workspace: Home, searched: int) -> None:
    """A master of the workspace's folder leaves it alone, and each verb that steers it is refused."""
    goes_on(home, workspace, searched)
    before = {path.name: path.read_bytes() for path in workspace.experiment(3).path.iterdir() if path.is_file()}

    for name, steer in VERBS.items():
        with pytest.raises((ExperimentError, MasterRefusedError), match="carried out by the home that has sent it"):
            steer(workspace)
            pytest.fail(f"{name} is not refused")
    status = call(workspace.root, GetStatus())
    with pytest.raises(TrialNotRunningError):
        trials.kill(workspace, 5, "test")
    call(workspace.root, Down())

    assert status.experiments == ()
    assert list(journaled_status(workspace).experiments) == []
    assert not go_on_here(workspace)
    assert not any(len(workspace.folder(each).attempts()) > 1 for each in workspace.trial_ids())
    assert {path.name: path.read_bytes() for path in workspace.experiment(3).path.iterdir() if path.is_file()} == before
    experiments.label(workspace, 3, add=["seen"])
    experiments.archive(workspace, 3)
    experiments.delete(workspace, 3)


def test_a_search_that_was_deleted_there_stops_no_push(home: Home, workspace: Home, searched: int) -> None:
    """Its trials do not come back, and other trials arrive."""
    with served(workspace) as url:
        pushed(home, url)
        experiments.delete(workspace, 3)
        other = train(home, 2)
        sent = pushed(home, url).pushed

    assert len(sent.problems) == 3 and all("was deleted there" in problem for problem in sent.problems)
    assert workspace.trial_ids() == [sent.numbers[other.trial_id]]


def test_a_copy_that_went_on_otherwise_does_not_mix(home: Home, workspace: Home, tmp_path: Path, searched: int) -> None:
    """What arrived first stays; an older copy sends nothing of the search, and another continuation is named."""
    older = Home(shutil.copytree(home.root, tmp_path / "older", ignore=shutil.ignore_patterns("*.sock")))
    journal = older.experiment(searched).events_path
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-2]))
    other = Home(shutil.copytree(older.root, tmp_path / "other", ignore=shutil.ignore_patterns("*.sock")))
    with other.experiment(searched).events_path.open("ab") as file:
        file.write(b"x" * 500 + b"\n")
    for copied in (older, other):
        with copied.experiment(searched).edit() as record:
            assert record.search is not None
            record.search = msgspec.structs.replace(record.search, state="PAUSED")

    with served(workspace) as url:
        pushed(home, url)
        told = [pushed(copied, url).pushed.problems for copied in (older, other)]
        left = pushed(home, url).pushed

    assert told[0] == [] and left.num_bytes == 0
    assert told[1] == [f"the search of experiment {searched} went on otherwise there, and is not sent"]
    assert workspace.experiment(3).events_path.read_bytes() == home.experiment(searched).events_path.read_bytes()
    found = workspace.experiment(3).read().search
    assert found is not None and found.state == "COMPLETED"


def test_files_of_an_experiment_are_taken_for_those_of_other_homes_only(workspace: Home) -> None:
    """A writer changes no experiment that the workspace's own home has."""
    folder = new_trial(workspace, "others")
    content = b"{}"

    for name in (EVENTS, CONFIG, SUBMISSION, SEARCH):
        whole = None if name == EVENTS else Extent(len(content), zlib.crc32(content))
        answers = RecordReceiver(workspace).receive([piece_of(folder.trial_id, name, 0, content, whole)])
        assert answers.answers[0].outcome == "refused", name

    assert not workspace.experiment(1).events_path.exists()
    assert workspace.experiment(1).read().search is None


def test_a_trial_of_a_search_is_fetched_with_its_code(
    home: Home, workspace: Home, tmp_path: Path, searched: int
) -> None:
    """The code of the search comes along as that of the trial."""
    with served(workspace) as url:
        pushed(home, url)
    other = Home.create(tmp_path / "other")

    export_trials(workspace, [5], tmp_path / "trial.tar")
    taken = import_trials(other, tmp_path / "trial.tar").taken

    record = other.folder(taken[5]).read_record()
    assert record.code is not None
    assert record.code.sha256 == home.experiment(searched).read_submission().code
    assert other.code_archive(record.code.sha256).read_bytes() == home.code_archive(record.code.sha256).read_bytes()
    assert not other.experiment(record.experiment_id).read().is_submitted


def test_a_received_search_is_merged(home: Home, workspace: Home, tmp_path: Path, searched: int) -> None:
    """The home of a workspace is merged into another one with its searches, whose trials get the numbers there."""
    with served(workspace) as url:
        pushed(home, url)
    other = Home.create(tmp_path / "other")

    merged = merge(other, workspace)

    (experiment_id,) = (each for each in other.experiment_ids() if other.experiment(each).read().is_submitted)
    seen = read_picture(Follower(other, experiment_id))
    assert sorted(each.trial_id for each in seen.trials) == sorted(merged.taken.values())
    assert other.experiment(experiment_id).read().is_received
    assert merge(home, workspace).taken == {}
