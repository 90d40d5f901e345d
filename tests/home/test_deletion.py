"""What is deleted is gone with all that belongs to it, and its id is never used again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from interfaces.cli.recorded import new_attempt, new_trial, store
from saving import checkpoint_ids

from core_sdk._ground.records import CheckpointPinned, CheckpointUsed
from core_sdk._home import Home, TrialFolder
from core_sdk._home.deletion import delete_experiment, delete_trial
from core_sdk._home.journal import read_journal
from core_sdk._home.next_attempt import claimed_next_attempt
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CheckpointProtectedError, ExperimentNotFoundError, TrialNotFoundError, TrialRunningError


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial with a checkpoint and some files of every kind."""
    folder = new_trial(home)
    training = new_attempt(folder)
    store(training, "a", 10)
    training.end()
    folder.log_path(1).write_text("output")
    (folder.tensorboard_path / "deeper").mkdir(parents=True)
    return folder


def test_a_deleted_trial_leaves_an_empty_folder(home: Home, folder: TrialFolder) -> None:
    """A deleted trial's folder is emptied but kept, so that its id is not reused."""
    delete_trial(folder)

    assert list(folder.path.iterdir()) == []
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == []
    assert home.trial_ids() == []
    assert home.create_trial().trial_id == folder.trial_id + 1


def test_a_trial_whose_checkpoint_is_missing_can_be_deleted(home: Home, folder: TrialFolder) -> None:
    """A trial whose checkpoint files are missing can be deleted."""
    DirectoryStorage(home.checkpoints).delete("a")

    delete_trial(folder)

    assert home.trial_ids() == []


def test_a_running_trial_is_not_deleted(home: Home, folder: TrialFolder) -> None:
    """A running trial is not deleted, and its files are unchanged."""
    training = new_attempt(folder)

    with pytest.raises(TrialRunningError, match="cannot delete trial 1"):
        delete_trial(folder)

    training.die()
    assert folder.log_path(1).exists()
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == ["a"]


@pytest.mark.parametrize("of", ["trial", "experiment"])
@pytest.mark.parametrize("reason", ["pinned", "a beginning", "in use"])
def test_a_trial_with_a_checkpoint_that_is_needed_is_deleted_only_by_force(
    home: Home, folder: TrialFolder, reason: str, of: str
) -> None:
    """A needed checkpoint protects its trial and experiment without force, and one in use even with force."""
    runs = None
    match reason:
        case "pinned":
            folder.append_change(CheckpointPinned(time=0.0, storage_id="a"))
        case "a beginning":
            new_trial(home, experiment="letters", continued_from="a")
        case "in use":
            runs = new_attempt(new_trial(home, experiment="letters"))
            runs.append(CheckpointUsed(time=0.0, storage_id="a"))

    def delete(is_forced: bool) -> None:
        if of == "trial":
            delete_trial(folder, is_forced=is_forced)
        else:
            delete_experiment(home, folder.read_record().experiment_id, is_forced=is_forced)

    with pytest.raises(CheckpointProtectedError, match="checkpoint a is not deleted"):
        delete(is_forced=False)
    is_whole = folder.exists() and checkpoint_ids(DirectoryStorage(home.checkpoints)) == ["a"]
    with pytest.raises(CheckpointProtectedError) if runs else contextlib.nullcontext():
        delete(is_forced=True)

    assert is_whole
    assert folder.exists() == (runs is not None)
    if runs:
        runs.die()


def test_an_experiment_whose_trials_continue_each_other_is_deleted(home: Home, folder: TrialFolder) -> None:
    """An experiment is deleted although its own trials began with each other's checkpoints."""
    new_trial(home, continued_from="a")

    delete_experiment(home, folder.read_record().experiment_id)

    assert home.trial_ids() == []


def test_a_trial_that_is_being_started_is_not_deleted(folder: TrialFolder) -> None:
    """A trial whose next attempt is being claimed is not deleted."""
    with claimed_next_attempt(folder, "resume"), pytest.raises(TrialRunningError):
        delete_trial(folder)


def test_an_experiment_is_deleted_with_its_trials_only(home: Home, folder: TrialFolder) -> None:
    """Deleting an experiment deletes its trials and keeps other experiments'."""
    other = new_trial(home, experiment="letters")

    delete_experiment(home, folder.read_record().experiment_id)

    assert home.trial_ids() == [other.trial_id]
    with pytest.raises(ExperimentNotFoundError):
        home.experiment(1)
    with pytest.raises(TrialNotFoundError):
        home.trial(folder.trial_id)


def test_an_experiment_with_a_running_trial_is_left_whole(home: Home, folder: TrialFolder) -> None:
    """An experiment with a running trial is not deleted, nor is any of its ended trials."""
    training = new_attempt(new_trial(home))

    with pytest.raises(TrialRunningError):
        delete_experiment(home, folder.read_record().experiment_id)

    training.die()
    assert home.trial_ids() == [1, 2]


def test_a_change_that_the_disk_refuses_leaves_nothing_of_it(small_disk: Path) -> None:
    """A change that the full disk refuses leaves no partial line that would damage the next one."""
    folder = new_trial(Home.create(small_disk / "home"))
    with contextlib.suppress(OSError), (small_disk / "hog").open("wb", buffering=0) as hog:
        while True:
            hog.write(bytes(100))

    with pytest.raises(OSError):
        for _ in range(1000):
            folder.append_change(CheckpointPinned(time=0.0, storage_id="a", note="n" * 100))
    (small_disk / "hog").unlink()
    folder.append_change(CheckpointPinned(time=0.0, storage_id="b"))

    (chunk,) = read_journal(folder.changes_path)
    assert chunk.bad_lines == []
    assert chunk.records[-1] == CheckpointPinned(time=0.0, storage_id="b")


def test_a_change_behind_half_a_line_is_kept(folder: TrialFolder) -> None:
    """A change after a partial line is read, and the partial line counts as damaged."""
    folder.append_change(CheckpointPinned(time=0.0, storage_id="a"))
    with folder.changes_path.open("ab") as file:
        file.write(b'0123abcd {"kind":"checkpoint_pi')

    folder.append_change(CheckpointPinned(time=0.0, storage_id="b"))

    (chunk,) = read_journal(folder.changes_path)
    assert [record.storage_id for record in chunk.records if isinstance(record, CheckpointPinned)] == ["a", "b"]
    assert len(chunk.bad_lines) == 1
