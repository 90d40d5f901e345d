"""What ranks do with a storage together: names compared, files brought to the chief, nothing seen before the end."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from saving import checkpoint_ids, store_alone
from stage import staged

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage import DirectoryStorage, Shard, ShardUnion, Staging, file_conflicts, unite
from core_sdk.errors import CheckpointNotFoundError, CheckpointNotStoredError, NotEnoughSpaceError, UnsafePathError

A = FileEntry(size_bytes=4, crc32c="aaaaaaaa")
B = FileEntry(size_bytes=4, crc32c="bbbbbbbb")
METADATA = {"steps_completed": 7}


@pytest.fixture
def storage(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "checkpoints")


@pytest.fixture
def stagings(storage: DirectoryStorage) -> list[Staging]:
    """Stagings of three ranks, each with its own storage object."""
    return [DirectoryStorage(storage.root).stage("a", is_shared=True) for _ in range(3)]


def write(directory: Path, **contents: bytes) -> None:
    """Writes files; underscores in names stand for directories."""
    for name, content in contents.items():
        path = directory / name.replace("_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def bring_together(stagings: list[Staging]) -> ShardUnion:
    """Runs all steps of a common save before the chief's commit."""
    union = unite([staging.seal() for staging in stagings])
    for rank, staging in enumerate(stagings):
        staging.contribute(union.names_of(rank), stagings[0].address)
    return union


def discard_all(stagings: list[Staging]) -> None:
    for staging in stagings:
        staging.discard()


@pytest.mark.parametrize(
    ("shards", "conflicts"),
    [
        ([], {}),
        ([Shard({"m": A}, []), Shard({"n": A}, [])], {}),
        ([Shard({"m": A}, []), Shard({"m": A}, [])], {}),
        ([Shard({}, ["d/"], {"l": "d"}), Shard({}, ["d/"], {"l": "d"})], {}),
        ([Shard({}, ["d/"], {"l": "d"}), Shard({}, ["e/"], {"l": "e"})], {"l": (0, 1)}),
        ([Shard({}, ["d/"], {"l": "d"}), Shard({}, ["l/"])], {"l": (0, 1)}),
        ([Shard({"m": A}, []), Shard({"m": B}, [])], {"m": (0, 1)}),
        ([Shard({"m": A}, []), Shard({}, []), Shard({"m": B}, [])], {"m": (0, 2)}),
        ([Shard({"m": A}, []), Shard({"m": A}, []), Shard({"m": B}, [])], {"m": (0, 1, 2)}),
        ([Shard({}, ["d/"]), Shard({"d/m": A}, ["d/"])], {}),
        ([Shard({"d": A}, []), Shard({"d/m": A}, ["d/"])], {"d": (0, 1)}),
        ([Shard({}, ["d/", "d/e/"]), Shard({"d/e": A}, ["d/"])], {"d/e": (0, 1)}),
        ([Shard({"n": A, "m": A}, []), Shard({"m": B, "n": B}, [])], {"m": (0, 1), "n": (0, 1)}),
    ],
    ids=[
        "no ranks", "names differ", "equal files", "equal links", "different links", "link and directory",
        "different files", "a rank between", "two of three", "directories",
        "file and directory", "deeper", "several",
    ],
)  # fmt: skip
def test_conflicts_are_different_things_of_one_name(shards: list[Shard], conflicts: dict[str, tuple[int, ...]]) -> None:
    """Different files or directories of one name are conflicts, and all ranks that use it are listed."""
    assert file_conflicts(shards) == conflicts


def test_an_equal_size_is_not_an_equal_file() -> None:
    """Files of different sizes conflict, even with equal checksums."""
    longer = FileEntry(size_bytes=5, crc32c="aaaaaaaa")

    assert file_conflicts([Shard({"m": A}, []), Shard({"m": longer}, [])]) == {"m": (0, 1)}


def test_of_equal_files_the_lowest_ranks_is_kept() -> None:
    """Of equal files the lowest rank's is kept, and names are sorted."""
    shards = [
        Shard({"z": A, "config": B}, []),
        Shard({"config": B, "d/m": A}, ["d/"]),
        Shard({"d/m": A}, ["d/", "empty/"]),
        Shard({}, []),
    ]

    union = unite(shards)

    assert union == ShardUnion(
        files={"config": B, "d/m": A, "z": A},
        directories=["d/", "empty/"],
        owners={"z": 0, "config": 0, "d/m": 1},
        ranks=(0, 1, 2),
    )
    assert list(union.files) == ["config", "d/m", "z"]
    assert [union.names_of(rank) for rank in range(4)] == [["z", "config"], ["d/m"], [], []]


def test_the_union_is_one_checkpoint(storage: DirectoryStorage, stagings: list[Staging]) -> None:
    """The union of all shards is one valid checkpoint, and no staged files are left."""
    for rank, staging in enumerate(stagings):
        (staging.path / f"rank{rank}.bin").write_bytes(random.Random(rank).randbytes(1000 + rank))
        write(staging.path, config=b"same", optimizer_common=b"same")
        write(staging.path, **{f"optimizer_{rank}": b"%d" % rank})
    (stagings[2].path / "empty").mkdir()

    union = bring_together(stagings)
    manifest = stagings[0].commit(union, METADATA)
    discard_all(stagings)

    assert storage.verify("a") == manifest
    assert set(manifest.resources) == {
        "config", "empty/", "metadata.json", "optimizer/", "optimizer/0", "optimizer/1", "optimizer/2",
        "optimizer/common", "rank0.bin", "rank1.bin", "rank2.bin",
    }  # fmt: skip
    assert (storage.root / "a" / "rank2.bin").read_bytes() == random.Random(2).randbytes(1002)
    assert manifest.ranks == (0, 1, 2)
    assert staged(storage) == []


def test_nothing_is_seen_before_the_chief_commits(storage: DirectoryStorage, stagings: list[Staging]) -> None:
    """Nothing is visible before the chief commits."""
    for rank, staging in enumerate(stagings):
        assert list(staging.path.iterdir()) == []
        write(staging.path, **{f"rank{rank}": b"1234"})
    bring_together(stagings)

    assert checkpoint_ids(storage) == []
    with pytest.raises(CheckpointNotFoundError):
        storage.manifest("a")
    discard_all(stagings)
    discard_all(stagings)

    assert checkpoint_ids(storage) == []
    assert staged(storage) == []


def test_a_rank_fills_its_shard_with_a_copy(storage: DirectoryStorage, stagings: list[Staging], tmp_path: Path) -> None:
    """fill() copies the selected files and leaves the source unchanged."""
    write(tmp_path / "source", model=b"1234", optimizer_state=b"12")
    stagings[0].fill(tmp_path / "source", lambda name: name == "model")
    stagings[1].fill(tmp_path / "source", lambda name: name.startswith("optimizer/"))
    stagings[2].fill(tmp_path / "source")

    stagings[0].commit(bring_together(stagings), METADATA)
    discard_all(stagings)

    assert set(storage.verify("a").resources) == {"metadata.json", "model", "optimizer/", "optimizer/state"}
    assert sorted(path.name for path in (tmp_path / "source").rglob("*")) == ["model", "optimizer", "state"]


def test_space_is_checked_before_a_shard_is_filled(stagings: list[Staging], tmp_path: Path) -> None:
    """A sparse file larger than any disk is refused before a byte is written."""
    write(tmp_path / "source", model=b"")
    os.truncate(tmp_path / "source" / "model", 2**43)

    with pytest.raises(NotEnoughSpaceError):
        stagings[1].fill(tmp_path / "source")

    assert list(stagings[1].path.iterdir()) == []
    discard_all(stagings)


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda path: (path / "metadata.json").write_text("mine"), ValueError),
        (lambda path: (path / "link").symlink_to("/etc/passwd"), UnsafePathError),
        (lambda path: os.mkfifo(path / "pipe"), UnsafePathError),
        (lambda path: shutil.rmtree(path), CheckpointNotStoredError),
    ],
    ids=["reserved name", "link outside", "pipe", "directory gone"],
)
def test_a_shard_that_cannot_be_kept_is_refused(
    stagings: list[Staging], spoil: Callable[[Path], object], error: type[Exception]
) -> None:
    """A shard with a reserved or unsafe file is refused."""
    spoil(stagings[1].path)

    with pytest.raises(error):
        stagings[1].seal()

    discard_all(stagings)


def test_what_comes_with_a_copied_checkpoint_is_no_part_of_a_shard(
    storage: DirectoryStorage, stagings: list[Staging], tmp_path: Path
) -> None:
    """The metadata and manifest of a copied checkpoint are not part of a shard."""
    with storage.stage("old") as old:
        write(old.path, model=b"1234")
        store_alone(old, {"steps_completed": 1})
    for staging in stagings:
        shutil.copytree(storage.root / "old", staging.path, dirs_exist_ok=True)

    manifest = stagings[0].commit(bring_together(stagings), METADATA)
    discard_all(stagings)

    assert manifest.metadata == METADATA
    assert storage.verify("a") == manifest


def test_links_within_a_shard_are_kept_as_files(storage: DirectoryStorage, stagings: list[Staging]) -> None:
    """Links within a shard are stored as files."""
    for staging in stagings:
        write(staging.path, model=b"1234")
        (staging.path / "latest").symlink_to(staging.path / "model")

    stagings[0].commit(bring_together(stagings), METADATA)
    discard_all(stagings)

    assert not (storage.root / "a" / "latest").is_symlink()
    storage.verify("a")


def test_a_chief_on_another_disk_is_noticed_at_once(tmp_path: Path) -> None:
    """If a rank does not see the chief's directory, the error names its host and the remedy."""
    chief = DirectoryStorage(tmp_path / "one").stage("a", is_shared=True)
    other = DirectoryStorage(tmp_path / "two").stage("a", is_shared=True)

    chief.check_reachable(chief.address)
    with pytest.raises(CheckpointNotStoredError, match=f"{os.uname().nodename} does not see there.*must share it"):
        other.check_reachable(chief.address)

    discard_all([chief, other])


def test_a_storage_may_be_mounted_at_different_places(tmp_path: Path) -> None:
    """Ranks may see the same storage at different paths."""
    chief_storage = DirectoryStorage(tmp_path / "one")
    chief = chief_storage.stage("a", is_shared=True)
    (tmp_path / "two").symlink_to(tmp_path / "one")
    other = DirectoryStorage(tmp_path / "two").stage("a", is_shared=True)
    write(other.path, model=b"1234")

    other.check_reachable(chief.address)
    chief.commit(bring_together([chief, other]), METADATA)
    discard_all([chief, other])

    assert chief_storage.verify("a").resources["model"] == 4


def test_a_chief_that_gives_up_leaves_nothing_to_ranks_that_come_late(
    storage: DirectoryStorage, stagings: list[Staging]
) -> None:
    """After the chief has given up, a late rank fails and leaves nothing."""
    write(stagings[1].path, deep_er_model=b"1234")
    union = unite([staging.seal() for staging in stagings])
    stagings[0].discard()

    with pytest.raises(CheckpointNotStoredError):
        stagings[1].contribute(union.names_of(1), stagings[0].address)

    discard_all(stagings)
    assert staged(storage) == []


def contribute_until_refused(staging: Staging, address: str, is_begun: threading.Event) -> None:
    names = list(staging.seal().files)
    is_begun.set()
    with contextlib.suppress(CheckpointNotStoredError):
        staging.contribute(names, address)


def test_a_chief_that_gives_up_while_others_bring_their_files_leaves_nothing(storage: DirectoryStorage) -> None:
    """If the chief gives up while a rank brings its files, nothing is left."""
    for _ in range(20):
        chief, other = storage.stage("a", is_shared=True), storage.stage("a", is_shared=True)
        for index in range(200):
            (other.path / f"{index}.bin").touch()
        is_begun = threading.Event()
        thread = threading.Thread(target=contribute_until_refused, args=(other, chief.address, is_begun))

        thread.start()
        is_begun.wait()
        chief.discard()
        thread.join()
        other.discard()

        assert staged(storage) == []


def test_files_that_another_rank_adds_during_a_removal_are_removed(storage: DirectoryStorage) -> None:
    """Files that a rank adds while a directory is being removed are removed too."""
    chief = storage.stage("a", is_shared=True)
    (chief.path / "first.bin").touch()
    directory = os.open(chief.path, os.O_RDONLY)
    is_begun = threading.Event()

    def add() -> None:
        with contextlib.suppress(FileNotFoundError):
            for index in range(1_000):
                os.close(os.open(f"{index}.bin", os.O_CREAT | os.O_WRONLY, dir_fd=directory))
                is_begun.set()

    thread = threading.Thread(target=add)
    thread.start()
    is_begun.wait()
    chief.discard()
    thread.join()
    os.close(directory)

    assert staged(storage) == []


def test_a_forked_child_discards_no_shard(storage: DirectoryStorage, stagings: list[Staging]) -> None:
    """A forked child does not discard its parent's shard."""
    write(stagings[0].path, model=b"1234")
    child = os.fork()
    if child == 0:
        stagings[0].discard()
        os._exit(0)
    os.waitpid(child, 0)

    stagings[0].commit(bring_together(stagings), METADATA)
    discard_all(stagings)

    storage.verify("a")


def test_shards_of_the_living_are_not_swept(storage: DirectoryStorage, stagings: list[Staging]) -> None:
    """A sweep does not remove the shards of living ranks."""
    write(stagings[1].path, model=b"1234")
    assert storage.sweep() == []
    union = bring_together(stagings)
    assert storage.sweep() == []

    stagings[0].commit(union, METADATA)
    discard_all(stagings)

    storage.verify("a")


def test_an_id_is_checked_before_a_shard_is_staged(storage: DirectoryStorage) -> None:
    """A hostile storage id is refused before a shard is staged."""
    with pytest.raises(UnsafePathError, match="the storage id"):
        storage.stage("../a", is_shared=True)

    assert not storage.root.exists()
