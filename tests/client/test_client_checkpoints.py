"""Checkpoints are listed in any order that was asked for, copied whole, and deleted for good."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from client.trainings import Train, Training
from saving import store_alone

from core_sdk._ground.records import CheckpointCondemned, CheckpointDeleted, CheckpointStored
from core_sdk._home import Home
from core_sdk._home.journal import read_records
from core_sdk._home.storage import open_storage
from core_sdk.client import Checkpoint, CheckpointSortBy, CheckpointState, OrderBy, Tracker
from core_sdk.errors import CheckpointDamagedError, CheckpointNotFoundError

Store = Callable[..., None]

WEIGHTS = b"weights" * 1000


@pytest.fixture
def store(home: Home) -> Store:
    """Stores a checkpoint as a training does: the files, then the record."""

    def store(training: Training, storage_id: str, steps: int, time: float | None = None) -> None:
        storage = open_storage(None, default=home.checkpoints)
        metadata = {"steps_completed": steps}
        with storage.stage(storage_id) as staging:
            (staging.path / "weights.bin").write_bytes(WEIGHTS)
            (staging.path / "optimizer").mkdir()
            (staging.path / "optimizer" / "state.bin").write_bytes(b"state")
            manifest = store_alone(staging, metadata)
        training.append(
            CheckpointStored(
                time=float(steps) if time is None else time,
                storage_id=storage_id,
                storage=storage.url,
                steps_completed=steps,
                metadata=metadata,
                resources=manifest.resources,
            )
        )

    return store


@pytest.fixture
def checkpoint(tracker: Tracker, train: Train, store: Store) -> Checkpoint:
    store(train(), "a", 10)
    return tracker.get_checkpoint("a")


def uuids(checkpoints: list[Checkpoint]) -> list[str]:
    return [checkpoint.uuid for checkpoint in checkpoints]


def test_a_checkpoint_says_what_it_is(tracker: Tracker, train: Train, store: Store) -> None:
    """A checkpoint shows its trial, files, metadata and the validation metrics of its step."""
    training = train(hparams={"lr": 0.1})
    store(training, "a", 10)
    training.report(10, "validation", accuracy=0.8)
    training.report(20, "validation", accuracy=0.9)

    checkpoint = tracker.get_checkpoint("a")

    assert (checkpoint.trial_id, checkpoint.experiment_id, checkpoint.trial_run_id) == (1, 1, 1)
    assert checkpoint.state is CheckpointState.COMPLETED
    assert checkpoint.metadata == {"steps_completed": 10}
    assert checkpoint.resources.keys() == {"metadata.json", "optimizer/", "optimizer/state.bin", "weights.bin"}
    assert checkpoint.resources["weights.bin"] == len(WEIGHTS)
    assert checkpoint.size_bytes == sum(checkpoint.resources.values())
    assert checkpoint.report_time == datetime.fromtimestamp(10, UTC)
    assert checkpoint.training.hparams == {"lr": 0.1}
    assert checkpoint.training.validation_metrics == {"avgMetrics": {"accuracy": 0.8}}
    assert checkpoint.get_trial().trial_id == checkpoint.get_experiment().id == 1


def test_validation_by_another_attempt_is_not_the_checkpoints(tracker: Tracker, train: Train, store: Store) -> None:
    """Validations of the same step by a later attempt do not belong to the checkpoint."""
    first = train()
    store(first, "a", 10)
    first.report(10, "validation", accuracy=0.5)
    first.die()
    train(folder=first.folder).report(10, "validation", accuracy=0.8)

    checkpoint = tracker.get_checkpoint("a")

    assert checkpoint.training.validation_metrics == {"avgMetrics": {"accuracy": 0.5}}


def test_the_newest_checkpoint_comes_first(tracker: Tracker, train: Train, store: Store) -> None:
    """Without an order, the newest checkpoint comes first."""
    training = train()
    for storage_id, steps in (("b", 10), ("c", 20), ("a", 30)):
        store(training, storage_id, steps)
    trial = tracker.get_trial(1)

    everything = trial.list_checkpoints()
    newest = trial.list_checkpoints(max_results=1)

    assert uuids(everything) == ["a", "c", "b"]
    assert uuids(newest) == ["a"]
    assert trial.latest_checkpoint == "a"


@pytest.mark.parametrize(
    ("sort_by", "ascending"),
    [
        (CheckpointSortBy.UUID, ["a", "b", "c"]),
        (CheckpointSortBy.TRIAL_ID, ["c", "b", "a"]),
        (CheckpointSortBy.BATCH_NUMBER, ["b", "c", "a"]),
        (CheckpointSortBy.END_TIME, ["c", "a", "b"]),
    ],
)
def test_checkpoints_come_in_the_order_asked_for(
    tracker: Tracker, train: Train, store: Store, sort_by: CheckpointSortBy, ascending: list[str]
) -> None:
    """Checkpoints of all trials of an experiment can be sorted in both directions."""
    store(train(), "c", 20, time=1.0)
    store(train(), "b", 10, time=3.0)
    store(train(), "a", 30, time=2.0)
    experiment = tracker.get_experiment(1)

    up = experiment.list_checkpoints(sort_by, OrderBy.ASC)
    down = experiment.list_checkpoints(sort_by, OrderBy.DESC)
    first = experiment.list_checkpoints(sort_by, OrderBy.ASC, max_results=1)

    assert uuids(up) == ascending
    assert uuids(down) == ascending[::-1]
    assert uuids(first) == ascending[:1]


def test_checkpoints_come_by_a_validation_metric(tracker: Tracker, train: Train, store: Store) -> None:
    """Checkpoints without the metric, or with NaN, come last in both directions."""
    training = train()
    for storage_id, steps in (("none", 10), ("good", 20), ("nan", 30), ("better", 40)):
        store(training, storage_id, steps)
    for steps, loss in ((20, 0.5), (30, "NaN"), (40, 0.25)):
        training.report(steps, "validation", loss=loss)
    trial = tracker.get_trial(1)

    lowest = trial.list_checkpoints("loss", OrderBy.ASC)
    highest = trial.list_checkpoints("loss", OrderBy.DESC)

    assert uuids(lowest)[:2] == ["better", "good"]
    assert uuids(highest)[:2] == ["good", "better"]
    assert set(uuids(lowest)[2:]) == set(uuids(highest)[2:]) == {"none", "nan"}


def test_an_order_needs_something_to_sort_by(tracker: Tracker, train: Train) -> None:
    """sort_by and order_by must be given together."""
    train()
    trial = tracker.get_trial(1)

    with pytest.raises(ValueError, match="order_by was given without sort_by"):
        trial.list_checkpoints(order_by=OrderBy.ASC)
    with pytest.raises(ValueError, match="sort_by was given without order_by"):
        tracker.get_experiment(1).list_checkpoints(CheckpointSortBy.UUID)
    with pytest.raises(ValueError, match="max_results is -1"):
        trial.list_checkpoints(max_results=-1)


def test_a_checkpoint_is_downloaded_to_a_place_of_its_own(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download goes to checkpoints/ID in the working directory, or to a given path."""
    monkeypatch.chdir(tmp_path)

    path = checkpoint.download()
    other = checkpoint.download(tmp_path / "other")

    assert path == "checkpoints/a"
    assert Path(path, "weights.bin").read_bytes() == WEIGHTS
    assert Path(path, "optimizer", "state.bin").read_bytes() == b"state"
    assert other == str(tmp_path / "other")
    assert Path(other, "weights.bin").read_bytes() == WEIGHTS


def test_a_second_download_copies_nothing(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A second download of intact files copies nothing."""
    path = Path(checkpoint.download(tmp_path / "copy"))
    before = (path / "weights.bin").stat()

    checkpoint.download(tmp_path / "copy")

    after = (path / "weights.bin").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("harm", ["cut", "flipped", "missing"])
def test_a_download_mends_what_is_not_whole(checkpoint: Checkpoint, tmp_path: Path, harm: str) -> None:
    """metadata.json in the target proves nothing: files are compared with the manifest."""
    path = Path(checkpoint.download(tmp_path / "copy"))
    weights = path / "weights.bin"
    if harm == "missing":
        weights.unlink()
    else:
        content = WEIGHTS[:100] if harm == "cut" else b"W" + WEIGHTS[1:]
        weights.unlink()
        weights.write_bytes(content)

    checkpoint.download(tmp_path / "copy")

    assert weights.read_bytes() == WEIGHTS


def test_a_damaged_checkpoint_is_not_downloaded(checkpoint: Checkpoint, home: Home, tmp_path: Path) -> None:
    """A damaged file fails the download, is named and is not left in the directory."""
    stored = home.checkpoints / "a" / "weights.bin"
    stored.chmod(0o600)
    stored.write_bytes(b"W" + WEIGHTS[1:])

    with pytest.raises(CheckpointDamagedError, match=r"weights\.bin"):
        checkpoint.download(tmp_path / "copy")
    with pytest.raises(CheckpointDamagedError, match=r"weights\.bin"):
        checkpoint.verify()

    assert not (tmp_path / "copy" / "weights.bin").exists()


def test_a_deleted_checkpoint_is_known_and_gone(checkpoint: Checkpoint, tracker: Tracker, home: Home) -> None:
    """A deleted checkpoint is not listed any more, but get_checkpoint() shows it as deleted."""
    trial = tracker.get_trial(1)

    checkpoint.delete()

    assert not (home.checkpoints / "a").exists()
    assert trial.list_checkpoints() == []
    assert checkpoint.state is CheckpointState.DELETED
    assert tracker.get_checkpoint("a").state is CheckpointState.DELETED
    with pytest.raises(CheckpointNotFoundError):
        checkpoint.download()


def test_a_checkpoint_whose_files_have_vanished_can_be_deleted(checkpoint: Checkpoint, home: Home) -> None:
    """The record of it would otherwise stand in the way of its trial for good."""
    shutil.rmtree(home.checkpoints / "a")

    checkpoint.delete()
    checkpoint.delete()

    assert checkpoint.state is CheckpointState.DELETED


def test_the_deletion_is_recorded_with_the_trial(checkpoint: Checkpoint, home: Home) -> None:
    """The deletion is recorded in the trial's journals."""
    checkpoint.delete()

    begun, done = read_records(home.trial(1).changes_path)

    assert isinstance(begun, CheckpointCondemned)
    assert isinstance(done, CheckpointDeleted)
    assert begun.storage_id == done.storage_id == "a"


def test_an_unknown_checkpoint_is_refused(tracker: Tracker) -> None:
    """An unknown id is refused without a look at the disk."""
    with pytest.raises(CheckpointNotFoundError, match=r"'\.\./\.\.'"):
        tracker.get_checkpoint("../..")


def test_the_metadata_is_written_as_json(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """write_metadata_file() writes plain JSON."""
    checkpoint.write_metadata_file(tmp_path / "metadata.json")

    assert json.loads((tmp_path / "metadata.json").read_text()) == {"steps_completed": 10}
