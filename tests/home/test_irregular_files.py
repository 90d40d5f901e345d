"""Pipes and links in the place of a home's files: nobody waits for a pipe or follows a link, and each is named."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from interfaces.cli.commands import COMMAND
from interfaces.cli.recorded import new_attempt, new_trial, store

from core_sdk._ground.alive import is_alive
from core_sdk._ground.records import CheckpointPinned
from core_sdk._home import Home, open_view
from core_sdk._home.deletion.collection import Request, collect
from core_sdk.errors import RecordDamagedError

ALL = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}
# A command that waits for a pipe would wait for ever.
HANGS_S = 60.0


@pytest.fixture
def two_trials(home: Home) -> Home:
    """Records two trials with two checkpoints each."""
    for number in (1, 2):
        training = new_attempt(new_trial(home))
        for steps, name in enumerate(("older", "newer"), start=1):
            store(training, f"{name}-{number}", steps)
        training.end()
    return home


def make_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_link(path: Path) -> None:
    """Replaces the file by a link to it."""
    aside = path.with_name(f"{path.name}.aside")
    if path.exists():
        path.rename(aside)
    path.symlink_to(aside)


IRREGULAR = pytest.mark.parametrize("make", [make_fifo, make_link])


@IRREGULAR
@pytest.mark.parametrize("name", ["1.journal", "changes.journal", "trial.json", "1.exit", "1.alive", "1.log"])
def test_a_file_of_a_trial_that_is_none_confines_its_damage(
    two_trials: Home, name: str, make: Callable[[Path], None]
) -> None:
    """An irregular file in one trial does not affect the listing of others."""
    make(two_trials.runs / "1" / name)

    for arguments in (["trial", "list"], ["checkpoint", "list"], ["trial", "logs", "1"], ["trial", "describe", "1"]):
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=os.environ | {"CORE_SDK_HOME": str(two_trials.root)},
            capture_output=True,
            text=True,
            timeout=HANGS_S,
        )
        assert "Traceback" not in done.stderr
        if arguments == ["checkpoint", "list"]:
            assert "newer-2" in done.stdout


@IRREGULAR
def test_nothing_of_a_trial_is_deleted_whose_journal_is_none(two_trials: Home, make: Callable[[Path], None]) -> None:
    """No checkpoint is deleted from a trial whose changes cannot be read, since one may be pinned."""
    make(two_trials.folder(1).changes_path)

    done = collect(two_trials, Request(policy=ALL))

    assert {verdict.storage_id for verdict in done.deleted} == {"older-2"}


def test_nothing_is_written_through_a_link(two_trials: Home, tmp_path: Path) -> None:
    """A change of a trial is not written through a symbolic link."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine\n")
    two_trials.folder(1).changes_path.symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        two_trials.folder(1).append_change(CheckpointPinned(time=0.0, storage_id="newer-1"))

    assert victim.read_bytes() == b"mine\n"


@IRREGULAR
def test_records_that_are_no_files_are_damaged(two_trials: Home, make: Callable[[Path], None]) -> None:
    """An irregular record file counts as damaged, and trials are still listed."""
    make(two_trials.experiment(1).record_path)

    with pytest.raises(RecordDamagedError, match="not a regular file"):
        two_trials.experiment(1).read()
    with open_view(two_trials) as view:
        assert len(view.trials()) == 2


@IRREGULAR
def test_an_experiment_is_found_although_its_name_is_no_file(two_trials: Home, make: Callable[[Path], None]) -> None:
    """An experiment is found by its record if its name file is irregular."""
    (by_name,) = (two_trials.experiments / "names").iterdir()
    make(by_name)

    found = two_trials.find_experiment("digits")

    assert found is not None
    assert found.experiment_id == 1


@IRREGULAR
def test_a_lock_that_is_no_file_is_held_by_nobody(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A lock that is not a regular file counts as free."""
    make(tmp_path / "1.alive")

    assert not is_alive(tmp_path / "1.alive")
