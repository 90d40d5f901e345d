"""Links that somebody has put where a checkpoint had a directory: nothing is deleted or written through one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from promises import promise
from saving import checkpoint_ids, store_alone

from core_sdk._ground.records import encode_manifest
from core_sdk._home import Home
from core_sdk._home.deletion import delete_trial
from core_sdk._home.storage import DirectoryStorage, unite
from core_sdk._home.storage._no_follow import opened_directory, remove
from core_sdk.errors import CheckpointDamagedError, CheckpointNotStoredError, StorageError, UnsafePathError

LONG_AGO_S = 10 * 3600.0


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    """A storage with one checkpoint, "good", of "sub/deep/x" and "y"."""
    storage = DirectoryStorage(tmp_path / "checkpoints")
    with storage.stage("good") as staging:
        (staging.path / "sub" / "deep").mkdir(parents=True)
        (staging.path / "sub" / "deep" / "x").write_bytes(b"weights")
        (staging.path / "y").write_bytes(b"more")
        store_alone(staging, {"steps_completed": 1})
    return storage


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside of the storage with the content of "sub" and of a checkpoint."""
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


@promise("paths-stay-inside")
@pytest.mark.parametrize("link", ["sub", "sub/deep"])
@pytest.mark.parametrize("glob", ["sub/**", "sub", "**/x", "sub/*/x"])
def test_a_partial_delete_follows_no_link(storage: DirectoryStorage, victim: Path, link: str, glob: str) -> None:
    """A partial deletion through a symbolic link is refused before anything is changed."""
    before = content(victim)
    replace(storage.root / "good" / link, victim / link.removeprefix("sub").strip("/"))

    with pytest.raises(CheckpointDamagedError) as raised:
        storage.delete("good", [glob])

    assert raised.value.file == link
    assert content(victim) == before
    assert storage.manifest("good").removed == []


def test_removal_passes_over_what_was_replaced_meanwhile(tmp_path: Path, victim: Path) -> None:
    """Removal skips entries that were replaced by a link or by another kind of entry."""
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


@promise("paths-stay-inside")
def test_a_whole_delete_removes_links_and_not_what_they_lead_to(storage: DirectoryStorage, victim: Path) -> None:
    """Deleting a checkpoint removes symbolic links but not their targets."""
    before = content(victim)
    replace(storage.root / "good" / "sub", victim)
    (storage.root / "linked").symlink_to(victim)

    storage.delete("good")
    storage.delete("linked")

    assert content(victim) == before
    assert [path.name for path in storage.root.iterdir()] == [".staging"]
    assert list((storage.root / ".staging").iterdir()) == []


def test_a_link_is_no_checkpoint(storage: DirectoryStorage, tmp_path: Path) -> None:
    """A symbolic link in the place of a checkpoint is refused."""
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
    """The storage itself may be reached through a symbolic link."""
    (tmp_path / "link").symlink_to(storage.root)
    linked = DirectoryStorage(tmp_path / "link")

    linked.verify("good")
    linked.delete("good", ["sub"])

    assert sorted(storage.manifest("good").resources) == ["metadata.json", "y"]


@pytest.mark.parametrize("kind", ["the area", "a place", "its lock"])
def test_a_sweep_follows_no_link(storage: DirectoryStorage, victim: Path, kind: str) -> None:
    """A sweep neither follows links nor removes directories of unknown names."""
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
    """Saves are refused if the staging area is a symbolic link."""
    (storage.root / ".staging").rmdir()
    (storage.root / ".staging").symlink_to(victim)

    with pytest.raises(StorageError, match="symbolic link"):
        storage.check_writable()
    with pytest.raises(CheckpointNotStoredError, match="symbolic link"):
        storage.stage("new")


@promise("paths-stay-inside")
def test_our_own_files_are_not_written_through_a_link(storage: DirectoryStorage, victim: Path) -> None:
    """Metadata and manifest are not written through a symbolic link."""
    before = content(victim)
    staged = storage.stage("new", is_shared=True)
    with pytest.raises(CheckpointNotStoredError), staged:
        shard = staged.seal()
        (staged.path / "metadata.json").symlink_to(victim / "x")
        staged.commit(unite([shard]), {"steps_completed": 2})

    assert content(victim) == before
    assert checkpoint_ids(storage) == ["good"]


def test_a_trial_whose_folder_is_a_link_is_not_emptied(home: Home, victim: Path) -> None:
    """A trial whose folder is a symbolic link is not deleted."""
    Home.create(home.root)
    (victim / "trial.json").write_bytes(b'{"trial_id":1,"experiment_id":1,"created":0.0}')
    before = content(victim)
    (home.runs / "1").symlink_to(victim)

    with pytest.raises(UnsafePathError, match="symbolic link"):
        delete_trial(home.trial(1))

    assert before.items() <= content(victim).items()


@pytest.mark.parametrize("replaced_by", ["a link", "a copy"])
def test_a_save_whose_directory_was_replaced_touches_no_other_checkpoint(
    storage: DirectoryStorage, replaced_by: str
) -> None:
    """If the staged directory is replaced, the save fails and other checkpoints are unchanged."""
    before = content(storage.root / "good")

    with pytest.raises(UnsafePathError, match="was replaced"), storage.stage("next") as staging:
        (staging.path / "x").write_bytes(b"new")
        staging.path.rename(staging.path.with_name("moved"))
        if replaced_by == "a link":
            staging.path.symlink_to(storage.root / "good")
        else:
            shutil.copytree(storage.root / "good", staging.path)
        store_alone(staging, {"steps_completed": 2})

    assert content(storage.root / "good") == before
    assert checkpoint_ids(storage) == ["good"]
    storage.verify("good")


@pytest.mark.parametrize("step", ["contribute", "commit"])
def test_a_directory_that_is_replaced_while_it_is_stored_gives_no_checkpoint(
    storage: DirectoryStorage, step: str
) -> None:
    """If the directory is replaced by a link during the commit, no checkpoint is stored."""
    before = content(storage.root / "good")

    with pytest.raises(CheckpointNotStoredError), storage.stage("next") as staging:
        (staging.path / "x").write_bytes(b"new")
        shard = staging.seal()
        if step == "commit":
            staging.contribute(list(shard.files), staging.address)
        replace(staging.path, storage.root / "good")
        if step == "contribute":
            staging.contribute(list(shard.files), staging.address)
        staging.commit(unite([shard]), {"steps_completed": 2})

    assert content(storage.root / "good") == before
    assert not (storage.root / "next").is_symlink()
    assert checkpoint_ids(storage) == ["good"]
    storage.verify("good")


def test_a_checkpoint_owns_the_bytes_of_its_files(storage: DirectoryStorage, tmp_path: Path) -> None:
    """A hard link to an outside file is stored as a copy."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"weights")

    with storage.stage("next") as staging:
        (staging.path / "sub").mkdir()
        (staging.path / "sub" / "x").hardlink_to(outside)
        store_alone(staging, {"steps_completed": 2})
    with outside.open("r+b") as file:
        file.write(b"W")

    storage.verify("next")
    assert (storage.root / "next" / "sub" / "x").read_bytes() == b"weights"
    assert outside.read_bytes() == b"Weights"


@pytest.mark.parametrize("target", ["../elsewhere", "/elsewhere", "empty", "sub/deep/x"])
def test_a_link_that_leads_elsewhere_than_was_stored_is_damage(
    storage: DirectoryStorage, tmp_path: Path, target: str
) -> None:
    """A changed link, or one that leads outside, counts as damage."""
    with storage.stage("next") as staging:
        (staging.path / "sub" / "deep").mkdir(parents=True)
        (staging.path / "sub" / "deep" / "x").write_bytes(b"x")
        (staging.path / "latest").symlink_to("sub")
        manifest = store_alone(staging, {"steps_completed": 2})
    storage.verify("next")
    link = storage.root / "next" / "latest"
    link.unlink()
    link.symlink_to(target)

    with pytest.raises(CheckpointDamagedError, match="not a link to sub any more"):
        storage.verify("next")
    forged = msgspec.structs.replace(manifest, links={"latest": target})
    (storage.root / "next" / ".manifest.json").write_bytes(encode_manifest(forged))
    with pytest.raises(CheckpointDamagedError, match="leads outside, or to no directory"):
        storage.download("next", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_link(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.symlink_to(path.with_name("aside"))


@pytest.mark.parametrize("make", [make_fifo, make_link])
@pytest.mark.parametrize("name", [".manifest.json", "metadata.json", "sub/deep/x"])
def test_what_is_no_file_is_named_and_not_read(
    storage: DirectoryStorage, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    """A pipe or link in the place of a file counts as damage and is not read."""
    make(storage.root / "good" / name)

    for read in (
        lambda: storage.verify("good"),
        lambda: storage.verify("good", lambda _: True),
        lambda: storage.download("good", tmp_path / "copy"),
        lambda: storage.open("good").__enter__(),
    ):
        with pytest.raises(CheckpointDamagedError, match=r"is not a regular file any more|was not there"):
            read()
    storage.delete("good")
    assert checkpoint_ids(storage) == []
