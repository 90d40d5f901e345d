"""Models of the registry keep their checkpoints."""

from __future__ import annotations

import threading
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from client.trainings import Train
from filelock import FileLock, Timeout
from interfaces.cli.recorded import store
from processes import wait_for

from core_sdk import client
from core_sdk._home import Home
from core_sdk._home.deletion.collection import Request, collect
from core_sdk.client import CheckpointState, ModelSortBy, OrderBy, Tracker
from core_sdk.errors import (
    CheckpointNotFoundError,
    CheckpointProtectedError,
    InvalidNameError,
    ModelNotFoundError,
    NameTakenError,
    NotFoundError,
    RecordDamagedError,
)


@pytest.fixture
def checkpoints(train: Train) -> list[str]:
    """Three checkpoints of a trial that has ended."""
    training = train()
    for steps, storage_id in enumerate("abc", start=1):
        store(training, storage_id, steps)
    training.end()
    return ["a", "b", "c"]


def test_versions_are_numbered_and_never_twice(checkpoints: list[str]) -> None:
    """The newest comes first; a number is not used again after its version was deleted."""
    model = client.create_model("digits", "reads digits", {"layers": 2}, ["vision"])

    first, second = (model.register_version(storage_id) for storage_id in ("a", "b"))
    second.delete()
    third = model.register_version("c")

    assert (first.model_version, second.model_version, third.model_version) == (1, 2, 3)
    assert [version.checkpoint.uuid for version in model.list_versions()] == ["c", "a"]
    assert [version.model_version for version in model.get_versions(OrderBy.ASC)] == [1, 3]
    newest = client.get_model("digits").get_version()
    assert newest is not None and (newest.checkpoint_uuid, newest.model_name) == ("c", "digits")
    with pytest.raises(NotFoundError, match="'digits' has no version 2"):
        model.get_version(2)
    assert client.create_model("empty").get_version() is None


def test_models_and_versions_are_described(tracker: Tracker, checkpoints: list[str]) -> None:
    """Changes to models and versions are seen by other handles."""
    model = tracker.create_model("digits", metadata={"layers": 2, "scale": float("inf")})
    version = model.register_version("a")

    model.add_metadata({"layers": 3, "by": "η"})
    model.remove_metadata(["scale", "never there"])
    model.set_labels(["b", "a", "b"])
    model.set_description("reads digits")
    model.archive()
    version.set_name("first")
    version.set_notes("for the paper")

    again = tracker.get_model(model.model_id)
    assert (again.metadata, again.labels) == ({"layers": 3, "by": "η"}, ["b", "a"])
    assert (again.description, again.archived, again.num_versions) == ("reads digits", True, 1)
    assert again.last_updated_time >= again.creation_time
    found = again.get_version(1)
    assert found is not None and (found.name, found.notes) == ("first", "for the paper")
    again.unarchive()
    model.reload()
    assert not model.archived


def test_models_are_found_by_what_is_said_of_them(tracker: Tracker) -> None:
    """Models are found by parts of their name or description, and can be sorted."""
    tracker.create_model("b", "Second", labels=["x"])
    tracker.create_model("a", "first", labels=["x", "y"])

    assert [model.name for model in tracker.list_models()] == ["a", "b"]
    assert [model.name for model in tracker.get_models(ModelSortBy.CREATION_TIME, OrderBy.DESC)] == ["a", "b"]
    assert [model.name for model in tracker.list_models(description="SEC")] == ["b"]
    assert [model.name for model in tracker.list_models(name="A")] == ["a"]
    assert tracker.get_model_labels() == ["x", "y"]
    assert (tracker.get_model(1).name, tracker.get_model_by_id(2).name) == ("b", "a")


def test_a_name_belongs_to_one_model(tracker: Tracker) -> None:
    """Only one of several concurrent models gets a name, and ids are not reused."""
    names: list[str] = []

    def create() -> None:
        try:
            names.append(tracker.create_model("digits").name)
        except NameTakenError as error:
            assert "another model is called 'digits'" in str(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert names == ["digits"]
    tracker.get_model("digits").delete()
    assert tracker.create_model("digits").model_id == 2
    with pytest.raises(InvalidNameError, match="is empty"):
        tracker.create_model("")


def test_a_registered_checkpoint_is_not_deleted(tracker: Tracker, checkpoints: list[str]) -> None:
    """A registered checkpoint is not deleted, in part or with its trial, even with force=True."""
    version = tracker.create_model("digits").register_version("a")
    checkpoint, trial, experiment = tracker.get_checkpoint("a"), tracker.get_trial(1), tracker.get_experiment(1)

    for delete in (checkpoint.delete, trial.delete, experiment.delete):
        for force in (False, True):
            with pytest.raises(CheckpointProtectedError, match=r"it is version 1 of the model 'digits'.*model delete"):
                delete(force=force)
    with pytest.raises(CheckpointProtectedError, match="the model 'digits'"):
        checkpoint.remove_files(["*"])
    version.delete()
    checkpoint.delete()

    assert checkpoint.state is CheckpointState.DELETED
    with pytest.raises(CheckpointNotFoundError, match="it was deleted"):
        tracker.get_model("digits").register_version("a")


def is_held(lock: Path) -> bool:
    try:
        with FileLock(lock, timeout=0):
            return False
    except Timeout:
        return True


def test_no_version_is_made_of_a_checkpoint_that_is_being_deleted(
    home: Home, tracker: Tracker, checkpoints: list[str]
) -> None:
    """The registration waits for the end of the deletion, and is refused then."""
    model, checkpoint = tracker.create_model("digits"), tracker.get_checkpoint("a")
    registry_lock = home.root / "models" / "models.lock"

    with ThreadPoolExecutor() as threads:
        with FileLock(home.folder(1).path / "changes.lock"):
            deletion = threads.submit(checkpoint.delete)  # which waits, to record that it begins
            wait_for(lambda: is_held(registry_lock))
            registration = threads.submit(model.register_version, "a")
            waits = not futures.wait([registration], timeout=0.5).done
        deletion.result()
        with pytest.raises(CheckpointNotFoundError, match="it was deleted"):
            registration.result()

    assert waits and model.list_versions() == []


def test_a_registered_checkpoint_is_not_collected(home: Home, tracker: Tracker, checkpoints: list[str]) -> None:
    """A registered checkpoint is kept by a policy that keeps nothing else."""
    tracker.create_model("digits").register_version("b")
    policy = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}

    collect(home, Request(policy=policy))

    assert [checkpoint.uuid for checkpoint in tracker.get_trial(1).list_checkpoints()] == ["b"]


def test_a_damaged_model_stops_deletions(home: Home, tracker: Tracker, checkpoints: list[str]) -> None:
    """If a model record is damaged, deletions are refused, since it may name the checkpoint."""
    model = tracker.create_model("digits")
    model.register_version("a")
    path = home.root / "models" / "1" / "model.json"
    path.write_text(path.read_text().replace("digits", "digitz"))

    with pytest.raises(RecordDamagedError, match=r"model\.json"):
        tracker.get_checkpoint("b").delete()


def test_what_is_not_there_is_named(tracker: Tracker) -> None:
    """An unknown model is named in the error, and a home without a registry has no models."""
    assert tracker.list_models() == []
    with pytest.raises(ModelNotFoundError, match=r"no model 'digits'.*core-sdk model list"):
        tracker.get_model("digits")
