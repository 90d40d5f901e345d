"""A trial goes on from the newest checkpoint that is whole, and it is said which were not."""

from __future__ import annotations

import time

import pytest
from interfaces.cli.recorded import damage, new_attempt, new_trial, store
from promises import promise
from saving import store_alone

from core_sdk._ground.records import CheckpointDeleted, CheckpointStored
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.storage import DirectoryStorage
from core_sdk.errors import CredentialsMissingError


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial with the checkpoints a, b and c, made by its first attempt at steps 10, 20 and 30."""
    folder = new_trial(home)
    training = new_attempt(folder)
    for storage_id, steps in (("a", 10), ("b", 20), ("c", 30)):
        store(training, storage_id, steps)
    training.die()
    return folder


def chosen(folder: TrialFolder) -> tuple[str | None, int, list[str]]:
    """Returns the chosen checkpoint, the trial's steps at it, and the skipped ones."""
    continuation = newest_good_checkpoint(folder)
    checkpoint = continuation.checkpoint
    skipped = [skipped.storage_id for skipped in continuation.skipped]
    return checkpoint.storage_id if checkpoint else None, continuation.steps_completed, skipped


def test_the_newest_checkpoint_is_chosen(folder: TrialFolder) -> None:
    """If all checkpoints are good, the last one that was stored is chosen."""
    assert chosen(folder) == ("c", 30, [])


@promise("damaged-checkpoint-skipped")
def test_damaged_checkpoints_are_skipped_and_named(folder: TrialFolder) -> None:
    """One flipped bit rules a checkpoint out; the reason names the file."""
    damage(Home(folder.home_root), "c")
    damage(Home(folder.home_root), "b")

    continuation = newest_good_checkpoint(folder)

    assert chosen(folder) == ("a", 10, ["c", "b"])
    assert all("weights.bin" in skipped.reason for skipped in continuation.skipped)


def test_a_checkpoint_whose_files_are_gone_is_skipped(folder: TrialFolder) -> None:
    """A checkpoint whose files were removed by hand is skipped."""
    DirectoryStorage(folder.home_root / "checkpoints").delete("c")

    assert chosen(folder) == ("b", 20, ["c"])


def test_a_deleted_checkpoint_does_not_count(folder: TrialFolder) -> None:
    """A checkpoint that was deleted, in whichever journal, is neither chosen nor reported as skipped."""
    folder.append_change(CheckpointDeleted(time=time.time(), storage_id="c"))
    training = new_attempt(folder, resumed_steps=30)
    training.append(CheckpointDeleted(time=time.time(), storage_id="b"))
    training.die()

    assert chosen(folder) == ("a", 10, [])


def test_checkpoints_behind_which_an_attempt_went_back_do_not_count(folder: TrialFolder) -> None:
    """Checkpoints beyond the step from which a later attempt resumed are not chosen, but its own are."""
    training = new_attempt(folder, resumed_steps=10)
    training.die()
    first = chosen(folder)
    store(training := new_attempt(folder, resumed_steps=10), "d", 15)
    training.die()

    second = chosen(folder)

    assert first == ("a", 10, [])
    assert second == ("d", 15, [])


def test_a_trial_without_checkpoints_has_nothing_to_go_on_from(home: Home) -> None:
    """A trial without checkpoints resumes from nothing, also if its script never called init()."""
    folder = new_trial(home)
    folder.run_info_path(1).write_text("{}")

    assert chosen(folder) == (None, 0, [])


def test_a_continued_trial_begins_again_with_the_other_trials_checkpoint(folder: TrialFolder) -> None:
    """A continued trial starts from the other trial's checkpoint at step 0 until it has its own."""
    follower = new_trial(Home(folder.home_root), continued_from="b")
    first = chosen(follower)
    store(training := new_attempt(follower), "own", 5)
    training.die()

    second = chosen(follower)

    assert first == ("b", 0, [])
    assert second == ("own", 5, [])


def test_a_continued_trial_whose_first_checkpoint_is_gone_says_so(home: Home) -> None:
    """If the first checkpoint of a continued trial is gone, it is reported as skipped."""
    follower = new_trial(home, continued_from="elsewhere")

    assert chosen(follower) == (None, 0, ["elsewhere"])


def test_a_storage_that_this_version_does_not_know_is_skipped(home: Home) -> None:
    """A checkpoint in an unknown kind of storage is skipped."""
    folder = new_trial(home)
    training = new_attempt(folder)
    training.append(
        CheckpointStored(time=0.0, storage_id="a", storage="tape://reel", steps_completed=1, metadata={}, resources={})
    )
    training.die()

    assert chosen(folder) == (None, 0, ["a"])


@promise("bucket-away")
def test_a_storage_that_cannot_be_asked_is_an_error(folder: TrialFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreachable storage is an error, since an older checkpoint elsewhere would lose progress."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    training = new_attempt(folder, resumed_steps=30)
    training.append(
        CheckpointStored(time=0.0, storage_id="d", storage="s3://far", steps_completed=40, metadata={}, resources={})
    )
    training.die()

    with pytest.raises(CredentialsMissingError, match="s3://far"):
        newest_good_checkpoint(folder)


def test_a_checkpoint_with_files_deleted_is_skipped(folder: TrialFolder) -> None:
    """A partly deleted checkpoint is skipped, even if the deletion was not recorded."""
    storage = DirectoryStorage(folder.home_root / "checkpoints")
    with storage.stage("d") as staging:
        for name in ("model.pt", "optimizer.pt"):
            (staging.path / name).write_bytes(b"state")
        store_alone(staging, {"steps_completed": 40})
    training = new_attempt(folder, resumed_steps=30)
    training.append(
        CheckpointStored(
            time=0.0, storage_id="d", storage=storage.url, steps_completed=40, metadata={}, resources={"model.pt": 5}
        )
    )
    training.die()
    whole = chosen(folder)

    storage.delete("d", ["optimizer.pt"])

    assert whole == ("d", 40, [])
    assert chosen(folder) == ("c", 30, ["d"])
