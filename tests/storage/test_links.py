"""Links that somebody has put where a checkpoint had a directory: nothing is deleted or written through one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from saving import checkpoint_ids, store_alone

from core_sdk.errors import CheckpointDamagedError, CheckpointNotStoredError, StorageNotWritableError, UnsafePathError
from core_sdk.storage import DirectoryStorage, unite
from core_sdk.storage.directory._no_follow import opened_directory, remove
from core_sdk.tracking import Home
from core_sdk.tracking.deletion import delete_trial

LONG_AGO_S = 10 * 3600.0


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    """With one checkpoint, "good", of "sub/deep/x" and "y"."""
    storage = DirectoryStorage(tmp_path / "checkpoints")
    with storage.stage("good") as staging:
        (staging.path / "sub" / "deep").mkdir(parents=True)
        (staging.path / "sub" / "deep" / "x").write_bytes(b"weights")
        (staging.path / "y").write_bytes(b"more")
        store_alone(staging, {"steps_completed": 1})
    return storage


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory that looks like "sub", and like a checkpoint."""
    victim = tmp_path / "victim"
    (victim / "deep").mkdir(parents=True)
    for name in ("deep/x", "x", ".manifest.json", "metadata.json"):
        (victim / name).write_bytes(b"weights")
    return victim


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def replace(directory: Path, target: Path) -> None:
    directory.rename(directory.with_name(f"{directory.name}.moved"))
    directory.symlink_to(target)


@pytest.mark.parametrize("link", ["sub", "sub/deep"])
@pytest.mark.parametrize("glob", ["sub/**", "sub", "**/x", "sub/*/x"])
def test_a_partial_delete_follows_no_link(storage: DirectoryStorage, victim: Path, link: str, glob: str) -> None:
    """It is refused, by the name of the link, before anything is changed."""
    before = content(victim)
    replace(storage.root / "good" / link, victim / link.removeprefix("sub").strip("/"))

    with pytest.raises(CheckpointDamagedError) as raised:
        storage.delete("good", [glob])

    assert raised.value.file == link
    assert content(victim) == before
    assert storage.manifest("good").removed == []


def test_removal_passes_over_what_was_replaced_meanwhile(tmp_path: Path, victim: Path) -> None:
    """By a link, by a directory in the place of a file, or the other way round."""
    directory = tmp_path / "directory"
    (directory / "file").mkdir(parents=True)
    (directory / "sub").symlink_to(victim)
    (directory / "empty").write_bytes(b"a file now")
    (directory / "full").mkdir()
    (directory / "full" / "of another").touch()
    before = content(tmp_path)

    with opened_directory(directory) as descriptor:
        remove(descriptor, ["sub/", "sub/deep/", "sub/deep/x", "sub/x", "file", "empty/", "full/", "gone", "gone/x"])

    assert content(tmp_path) == before


def test_a_whole_delete_removes_links_and_not_what_they_lead_to(storage: DirectoryStorage, victim: Path) -> None:
    """Within the checkpoint, or in its place."""
    before = content(victim)
    replace(storage.root / "good" / "sub", victim)
    (storage.root / "linked").symlink_to(victim)

    storage.delete("good")
    storage.delete("linked")

    assert content(victim) == before
    assert [path.name for path in storage.root.iterdir()] == [".staging"]
    assert list((storage.root / ".staging").iterdir()) == []


def test_a_link_is_no_checkpoint(storage: DirectoryStorage, tmp_path: Path) -> None:
    """Whatever it leads to: an id does not reach outside its storage."""
    other = DirectoryStorage(tmp_path / "other")
    other.root.mkdir()
    (other.root / "good").symlink_to(storage.root / "good")

    assert checkpoint_ids(other) == []
    with pytest.raises(CheckpointDamagedError, match="symbolic link"):
        other.verify("good")
    with pytest.raises(CheckpointDamagedError, match="symbolic link"):
        other.delete("good", ["y"])
    with pytest.raises(CheckpointDamagedError, match="symbolic link"):
        other.download("good", tmp_path / "copy")
    storage.verify("good")


def test_a_storage_may_be_reached_through_a_link(storage: DirectoryStorage, tmp_path: Path) -> None:
    """Who configures it says where it lies."""
    (tmp_path / "link").symlink_to(storage.root)
    linked = DirectoryStorage(tmp_path / "link")

    linked.verify("good")
    linked.delete("good", ["sub"])

    assert sorted(storage.manifest("good").resources) == ["metadata.json", "y"]


@pytest.mark.parametrize("kind", ["the area", "a place", "its lock"])
def test_a_sweep_follows_no_link(storage: DirectoryStorage, victim: Path, kind: str) -> None:
    """Nor does it take for its own what does not bear the name of one of its places."""
    (victim / "0123456789ab-00000000000000000000000000000000").mkdir()
    (victim / "0123456789ab-00000000000000000000000000000000" / "file").write_bytes(b"precious")
    before = content(victim)
    place = storage.root / ".staging" / "0123456789ab-11111111111111111111111111111111"
    match kind:
        case "the area":
            (storage.root / ".staging").rmdir()
            (storage.root / ".staging").symlink_to(victim)
        case "a place":
            place.symlink_to(victim)
        case "its lock":
            place.with_name(f"{place.name}.lock").symlink_to(victim / "x")
    for path in (*victim.rglob("*"), victim):
        os.utime(path, (time.time() - LONG_AGO_S,) * 2)

    storage.sweep()

    assert content(victim) == before


def test_nothing_is_staged_through_a_link(storage: DirectoryStorage, victim: Path) -> None:
    """It is refused before the training."""
    (storage.root / ".staging").rmdir()
    (storage.root / ".staging").symlink_to(victim)

    with pytest.raises(StorageNotWritableError, match="symbolic link"):
        storage.check_writable()
    with pytest.raises(CheckpointNotStoredError, match="symbolic link"):
        storage.stage("new")


def test_our_own_files_are_not_written_through_a_link(storage: DirectoryStorage, victim: Path) -> None:
    """One that came when the files were sealed already."""
    before = content(victim)
    staged = storage.stage("new", is_shared=True)
    with pytest.raises(CheckpointNotStoredError), staged:
        shard = staged.seal()
        (staged.path / "metadata.json").symlink_to(victim / "x")
        staged.commit(unite([shard]), {"steps_completed": 2})

    assert content(victim) == before
    assert checkpoint_ids(storage) == ["good"]


def test_a_trial_whose_folder_is_a_link_is_not_emptied(home: Home, victim: Path) -> None:
    """What it leads to may be anything that has a trial.json."""
    Home.create(home.root)
    (victim / "trial.json").write_bytes(b'{"trial_id":1,"experiment_id":1,"created":0.0}')
    before = content(victim)
    (home.runs / "1").symlink_to(victim)

    with pytest.raises(UnsafePathError, match="symbolic link"):
        delete_trial(home.trial(1))

    assert before.items() <= content(victim).items()
