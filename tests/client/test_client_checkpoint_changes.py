"""What is done to a checkpoint from outside: pins, metadata, and deleting it in part or whole."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from client.trainings import Training
from interfaces.cli.recorded import new_attempt, new_trial
from saving import checkpoint_ids, store_alone

from core_sdk._ground.records import CheckpointStored, CheckpointUsed
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.storage import DirectoryStorage
from core_sdk.client import Checkpoint, CheckpointState, Tracker
from core_sdk.errors import CheckpointProtectedError, UnsafePathError


def store(training: Training, storage_id: str, steps: int) -> None:
    """Stores a checkpoint of a model and an optimizer with two files."""
    storage = DirectoryStorage(training.folder.home_root / "checkpoints")
    metadata = {"steps_completed": steps, "note": "as stored"}
    with storage.stage(storage_id) as staging:
        (staging.path / "model.pt").write_bytes(b"weights")
        (staging.path / "optimizer").mkdir()
        for name in ("m.bin", "v.bin"):
            (staging.path / "optimizer" / name).write_bytes(b"moments")
        manifest = store_alone(staging, metadata)
    training.append(
        CheckpointStored(
            time=float(steps),
            storage_id=storage_id,
            storage=storage.url,
            steps_completed=steps,
            metadata=metadata,
            resources=manifest.resources,
        )
    )


@pytest.fixture
def checkpoint(home: Home) -> Checkpoint:
    """Returns the newer checkpoint of an ended trial with two."""
    training = new_attempt(new_trial(home))
    store(training, "older", 10)
    store(training, "a", 20)
    training.end()
    return Tracker().get_checkpoint("a")


def again(checkpoint: Checkpoint) -> Checkpoint:
    """Reads the checkpoint through an index that was rebuilt from the journals."""
    home = Tracker().home
    Index.rebuild(home)
    return Tracker(home.root).get_checkpoint(checkpoint.uuid)


def test_metadata_is_added_updated_and_removed(checkpoint: Checkpoint) -> None:
    """add_metadata() keeps other keys, and remove_metadata() ignores unknown ones."""
    checkpoint.add_metadata({"note": "good", "score": 0.5, "tags": ["x"]})
    checkpoint.add_metadata({"score": math.inf})
    checkpoint.remove_metadata(["tags", "never there"])

    assert checkpoint.metadata == {"steps_completed": 20, "note": "good", "score": math.inf}
    assert again(checkpoint).metadata == checkpoint.metadata


def test_what_was_stored_stays_as_it_was_written(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Changes to the tracker's metadata leave the stored metadata.json as it was."""
    checkpoint.add_metadata({"note": "changed"})

    checkpoint.verify()
    directory = checkpoint.download(tmp_path / "copy")

    assert json.loads(Path(directory, "metadata.json").read_text())["note"] == "as stored"


@pytest.mark.parametrize("metadata", [{"a": object()}, {1: "a"}, ["a"]])
def test_metadata_that_json_cannot_keep_is_refused(checkpoint: Checkpoint, metadata: dict[str, object]) -> None:
    """Metadata that JSON cannot keep is refused, and nothing is recorded."""
    with pytest.raises(TypeError):
        checkpoint.add_metadata(metadata)

    assert again(checkpoint).metadata == {"steps_completed": 20, "note": "as stored"}


def test_single_strings_are_no_lists(checkpoint: Checkpoint) -> None:
    """A single string is refused where a list is expected."""
    with pytest.raises(TypeError, match="keys"):
        checkpoint.remove_metadata("note")
    with pytest.raises(TypeError, match="globs"):
        checkpoint.remove_files("*")


def test_files_are_removed_and_the_rest_is_whole(checkpoint: Checkpoint) -> None:
    """After a partial deletion the rest verifies, and the state and size say what is left."""
    checkpoint.remove_files(["optimizer"])

    checkpoint.verify()
    assert checkpoint.state is CheckpointState.PARTIALLY_DELETED
    assert checkpoint.resources.keys() == {"metadata.json", "model.pt"}
    assert checkpoint.size_bytes == sum(checkpoint.resources.values())
    assert again(checkpoint).state is CheckpointState.PARTIALLY_DELETED


def test_a_trial_does_not_go_on_from_a_partly_deleted_checkpoint(checkpoint: Checkpoint) -> None:
    """A partly deleted checkpoint is listed but is not the trial's latest one."""
    before = checkpoint.get_trial().latest_checkpoint

    checkpoint.remove_files(["optimizer"])

    trial = checkpoint.get_trial()
    assert before == "a"
    assert trial.latest_checkpoint == "older"
    assert [found.uuid for found in trial.list_checkpoints()] == ["a", "older"]


def test_removing_nothing_changes_nothing(checkpoint: Checkpoint) -> None:
    """A pattern without a match leaves the checkpoint complete."""
    checkpoint.remove_files(["*.none"])

    assert checkpoint.state is CheckpointState.COMPLETED


def test_removing_every_file_deletes_the_checkpoint(checkpoint: Checkpoint, home: Home) -> None:
    """Removing every file deletes the checkpoint."""
    checkpoint.remove_files(["**"])

    assert checkpoint.state is CheckpointState.DELETED
    assert checkpoint_ids(DirectoryStorage(home.checkpoints)) == ["older"]


def test_patterns_that_point_outside_are_refused(checkpoint: Checkpoint) -> None:
    """A pattern that points outside the checkpoint is refused."""
    with pytest.raises(UnsafePathError):
        checkpoint.remove_files(["../older/*"])

    checkpoint.verify()


def test_a_pinned_checkpoint_says_so_and_is_not_deleted(checkpoint: Checkpoint) -> None:
    """A pinned checkpoint is deleted, whole or in part, only after unpin()."""
    checkpoint.pin("for the paper")

    with pytest.raises(CheckpointProtectedError, match="for the paper"):
        checkpoint.delete()
    with pytest.raises(CheckpointProtectedError):
        checkpoint.remove_files(["optimizer"])
    found = again(checkpoint)
    assert (found.is_pinned, found.pin_note) == (True, "for the paper")
    checkpoint.unpin()
    assert not checkpoint.is_pinned
    checkpoint.delete()
    assert checkpoint.state is CheckpointState.DELETED


def test_what_a_trial_began_with_is_deleted_by_force_only(checkpoint: Checkpoint, home: Home) -> None:
    """A checkpoint with which another trial began is deleted only with force=True; the error names the trial."""
    new_trial(home, continued_from="a")

    with pytest.raises(CheckpointProtectedError, match="trial 2 began with it"):
        checkpoint.delete()
    checkpoint.delete(force=True)

    assert checkpoint.state is CheckpointState.DELETED


def test_what_a_running_attempt_uses_is_not_deleted_even_by_force(checkpoint: Checkpoint, home: Home) -> None:
    """A checkpoint that a running attempt uses is not deleted, even with force=True."""
    training = new_attempt(new_trial(home))
    training.append(CheckpointUsed(time=1.0, storage_id="a"))

    with pytest.raises(CheckpointProtectedError, match="running trial 2"):
        checkpoint.delete(force=True)
    training.end()
    checkpoint.delete()

    assert checkpoint.state is CheckpointState.DELETED
