"""A copied home is told apart: its trials are the same ones until they go on there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from home.journals import new_trial
from workspace.workspaces import pushed, served, train

from core_sdk._ground.records import FORMAT, AttemptStarted, Report
from core_sdk._home import Home
from core_sdk._home.journal import encode_line


@pytest.fixture
def workspace(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "lab")


def copied(home: Home) -> Home:
    target = home.root.with_name("copy")
    shutil.copytree(home.root, target)
    return Home(target)


def go_on(home: Home, attempt: int, steps: int) -> bytes:
    """Records an attempt of trial 1 as a script in this home does. Returns all of its journal."""
    path = home.folder(1).journal_path(attempt)
    started = AttemptStarted(
        time=1.0, format=FORMAT, trial_id=1, attempt=attempt, host="h", pid=1, sdk_version="1", home=home.identity()
    )
    with path.open("ab") as journal:
        if not path.stat().st_size:
            journal.write(encode_line(started))
        for step in range(steps):
            journal.write(encode_line(Report(2.0, "training", step, {"loss": float(attempt)})))
    return path.read_bytes()


def journals(home: Home, trial_id: int) -> list[bytes]:
    folder = home.folder(trial_id)
    return [folder.journal_path(attempt).read_bytes() for attempt in folder.attempts()]


def test_a_copy_that_has_not_gone_on_is_the_same_trial(home: Home, workspace: Home) -> None:
    """Nothing is sent of it, and it has no number of its own."""
    train(home, 3)

    with served(workspace) as url:
        pushed(home, url)
        copy = pushed(copied(home), url).pushed

    assert (copy.numbers, copy.num_bytes) == ({1: 1}, 0)
    assert workspace.trial_ids() == [1]


def test_a_copy_that_went_on_gets_a_number_of_its_own(home: Home, workspace: Home) -> None:
    """Both went on with an attempt 2, and each has all of its own in the workspace."""
    new_trial(home)
    go_on(home, 1, 3)

    with served(workspace) as url:
        pushed(home, url)
        copy = copied(home)
        go_on(home, 2, 5)
        go_on(copy, 2, 7)
        of_copy = pushed(copy, url).pushed.numbers
        of_home = pushed(home, url).pushed.numbers

    assert (of_home, of_copy) == ({1: 1}, {1: 2})
    assert journals(workspace, 1) == journals(home, 1)
    assert journals(workspace, 2) == journals(copy, 1)


def test_a_home_that_was_copied_while_it_trained_is_told_apart(home: Home, workspace: Home) -> None:
    """The original goes on with attempt 1, and the copy, pushed first, with attempt 2: they are not mixed."""
    new_trial(home)
    go_on(home, 1, 3)
    copy = copied(home)

    with served(workspace) as url:
        go_on(copy, 2, 4)
        pushed(copy, url)
        for _ in range(3):
            go_on(home, 1, 2)
            pushed(home, url)
            go_on(copy, 2, 2)
            pushed(copy, url)

    assert workspace.trial_ids() == [1, 2]
    assert journals(workspace, 1) == journals(copy, 1)
    assert journals(workspace, 2) == journals(home, 1)


def test_a_home_that_was_moved_and_adopted_goes_on_with_its_number(home: Home, workspace: Home) -> None:
    """What its owner has declared counts, and not that its folder is another one."""
    new_trial(home)
    go_on(home, 1, 3)

    with served(workspace) as url:
        pushed(home, url)
        moved = copied(home)
        moved.adopt([home.identity()])
        go_on(moved, 1, 2)
        numbers = pushed(moved, url).pushed.numbers

    assert numbers == {1: 1}
    assert journals(workspace, 1) == journals(moved, 1)


def test_bytes_that_differ_are_refused_and_get_another_number(home: Home, workspace: Home) -> None:
    """The home was restored from a backup, in its place, and its trial went on otherwise."""
    new_trial(home)
    go_on(home, 1, 3)
    backup = home.folder(1).journal_path(1).read_bytes()

    with served(workspace) as url:
        go_on(home, 1, 2)
        there = go_on(home, 1, 2)
        pushed(home, url)
        home.folder(1).journal_path(1).write_bytes(backup)
        here = go_on(home, 1, 1) + encode_line(Report(3.0, "training", 9, {"loss": 9.0}))
        home.folder(1).journal_path(1).write_bytes(here)
        result = pushed(home, url).pushed

    assert result.numbers == {1: 2}
    assert result.problems == ["trial 1 is trial 2 there: trial 1 there went on otherwise"]
    assert journals(workspace, 1) == [there]
    assert journals(workspace, 2) == [here]


def test_a_trial_that_was_deleted_there_does_not_come_back(home: Home, workspace: Home) -> None:
    """The push says so, and leaves it out."""
    train(home, 3)

    with served(workspace) as url:
        pushed(home, url)
        workspace.folder(1).clear()
        result = pushed(home, url).pushed

    assert workspace.trial_ids() == []
    assert result.problems == ["trial 1 was trial 1 there, and was deleted there"]


def test_what_is_said_of_a_trial_arrives_and_joins_what_is_said_there(home: Home, workspace: Home) -> None:
    """Labels of both sides stay, and those of the home come once."""
    from core_sdk._ground.records import TrialLabelsChanged

    train(home, 3)

    with served(workspace) as url:
        pushed(home, url)
        workspace.folder(1).append_change(TrialLabelsChanged(time=1.0, added=["there"]))
        home.folder(1).append_change(TrialLabelsChanged(time=2.0, added=["here"]))
        pushed(home, url)
        home.folder(1).append_change(TrialLabelsChanged(time=3.0, added=["later"]))
        pushed(home, url)

    lines = workspace.folder(1).changes_path.read_bytes()
    assert [lines.count(word) for word in (b'"there"', b'"here"', b'"later"')] == [1, 1, 1]
