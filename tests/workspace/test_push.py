"""Trials of a home arrive in a workspace over HTTP, byte by byte, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from home.journals import new_trial
from workspace.workspaces import pushed, served, train

from core_sdk import core
from core_sdk._home import Home, open_view


@pytest.fixture
def workspace(tmp_path: Path) -> Home:
    workspace = Home.create(tmp_path / "lab")
    new_trial(workspace, "of another")
    return workspace


def state_of(home: Home, trial_id: int) -> str:
    with open_view(home) as view:
        return view.trial(trial_id).state


def journal(home: Home, trial_id: int, attempt: int = 1) -> bytes:
    return home.folder(trial_id).journal_path(attempt).read_bytes()


def test_a_finished_trial_arrives_byte_by_byte(home: Home, workspace: Home) -> None:
    """The journal in the workspace is the one of the home, and so are the reports that are shown."""
    trial = train(home, 20)

    with served(workspace) as url:
        numbers = pushed(home, url).pushed.numbers

    assert numbers == {trial.trial_id: 2}
    assert journal(workspace, 2) == trial.journal_path(1).read_bytes()
    with open_view(workspace) as view:
        row = view.trial(2)
        assert (row.state, row.experiment_name, row.hparams) == ("COMPLETED", "digits", {"lr": 0.1})
        assert len(list(view.reports(2, "training"))) == 20


def test_a_running_trial_arrives_as_it_is_and_then_the_rest(home: Home, workspace: Home) -> None:
    """A push during the training sends what was reported by then; the next one what came since."""
    with served(workspace) as url:
        with core.init(name="digits") as ctx:
            trial = home.folder(ctx.info.trial.trial_id)
            ctx.train.report_training_metrics(steps_completed=1, metrics={"loss": 1.0})
            pushed(home, url)
            halfway, state = journal(workspace, 2), state_of(workspace, 2)
            ctx.train.report_training_metrics(steps_completed=2, metrics={"loss": 0.5})
        pushed(home, url)
        pushed(home, url)

    assert (state, state_of(workspace, 2)) == ("ACTIVE", "COMPLETED")
    whole = trial.journal_path(1).read_bytes()
    assert journal(workspace, 2) == whole
    assert b'"steps_completed":1,' in halfway and whole.startswith(halfway) and len(halfway) < len(whole)


def test_a_repeated_push_sends_nothing(home: Home, workspace: Home) -> None:
    """What has arrived is known from the sizes of the files there."""
    train(home, 5)
    train(home, 5)

    with served(workspace) as url:
        first = pushed(home, url).pushed
        second = pushed(home, url).pushed

    assert first.num_bytes > 0 and second.num_bytes == 0
    assert second.numbers == first.numbers and not second.problems
    assert workspace.trial_ids() == [1, 2, 3]
