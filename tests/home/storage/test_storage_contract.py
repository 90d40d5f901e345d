"""What holds for every storage, wherever the bytes lie."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from buckets.memory import MemoryBucket
from buckets.servers import BucketServer
from promises import promise
from saving import checkpoint_ids, store_alone, upload

from core_sdk._home.storage import DirectoryStorage, Storage, file_conflicts, storage_from_url, unite
from core_sdk._home.storage.bucket import BucketStorage, Limits
from core_sdk.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CheckpointNotStoredError,
    CheckpointProtectedError,
    NotEnoughSpaceError,
    UnsafePathError,
)

METADATA = {"steps_completed": 7, "loss": float("inf")}
SERVERS = ["strict GCS", "moto", "SeaweedFS", "Azurite"]
EVERYWHERE = pytest.mark.parametrize("open_storage", ["directory", "memory", *SERVERS], indirect=True)
# Small enough that a few kilobytes travel in parts and ranges.
SMALL = Limits(deadline_s=5.0, whole_bytes=3_000, range_bytes=2_000)


@pytest.fixture(params=["directory", "memory"])
def open_storage(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_server: Callable[[str], BucketServer],
) -> Iterator[Callable[[], Storage]]:
    """Returns a function that opens the same storage again, as another process would."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with contextlib.ExitStack() as opened:
        opener = _opener(request.param, tmp_path, monkeypatch, start_server)

        def open_it() -> Storage:
            storage = opener()
            opened.callback(storage.close)
            return storage

        yield open_it


def _opener(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_server: Callable[[str], BucketServer]
) -> Callable[[], Storage]:
    if kind == "directory":
        return lambda: DirectoryStorage(tmp_path / "checkpoints")
    if kind == "memory":
        bucket = MemoryBucket()
        return lambda: BucketStorage(bucket, temp_dir=tmp_path / "temp", limits=SMALL)
    server = start_server(kind)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    url = server.make_bucket()
    return lambda: storage_from_url(url)


@pytest.fixture
def storage(open_storage: Callable[[], Storage]) -> Storage:
    return open_storage()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory as a script might upload it."""
    source = tmp_path / "source"
    (source / "optimizer" / "empty").mkdir(parents=True)
    (source / "model.bin").write_bytes(random.Random(1).randbytes(20_000))
    (source / "optimizer" / "state ünï %41+#?.bin").write_bytes(random.Random(2).randbytes(300))
    (source / "nothing").write_bytes(b"")
    return source


def tree(directory: Path) -> dict[str, bytes | None]:
    """Returns the content of all files and the directories, without metadata and manifest."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
        if path.name not in ("metadata.json", ".manifest.json")
    }


@EVERYWHERE
def test_what_was_stored_comes_back(open_storage: Callable[[], Storage], source: Path, tmp_path: Path) -> None:
    """Uploaded and staged checkpoints are read back from a newly opened storage."""
    open_storage().check_writable()
    upload(open_storage(), "uploaded", source, METADATA)
    with open_storage().stage("staged") as staging:
        staging.fill(source)
        store_alone(staging, METADATA)

    for storage_id in ("uploaded", "staged"):
        storage = open_storage()
        storage.verify(storage_id)
        storage.check(storage_id)
        storage.download(storage_id, tmp_path / storage_id)
        with storage.open(storage_id) as path:
            assert tree(path) == tree(tmp_path / storage_id) == tree(source)
    assert checkpoint_ids(open_storage()) == ["staged", "uploaded"]


@promise("bucket-checkpoint-whole")
def test_nothing_is_seen_before_the_commit(open_storage: Callable[[], Storage], source: Path) -> None:
    """A checkpoint without a commit is never visible."""
    with open_storage().stage("a") as staging:
        staging.fill(source)

        assert checkpoint_ids(open_storage()) == []
    assert checkpoint_ids(open_storage()) == []
    with pytest.raises(CheckpointNotFoundError):
        open_storage().manifest("a")


def test_an_id_is_used_once(open_storage: Callable[[], Storage], source: Path) -> None:
    """A second checkpoint of the same id is refused, and the first is unchanged."""
    upload(open_storage(), "a", source, METADATA)
    (source / "model.bin").write_bytes(b"other")

    with pytest.raises(CheckpointNotStoredError):
        upload(open_storage(), "a", source, METADATA)

    assert open_storage().check("a").resources["model.bin"] == 20_000


def test_selectors_choose_what_comes_down(storage: Storage, source: Path, tmp_path: Path) -> None:
    """A selector chooses the downloaded files; metadata and manifest are always included."""
    upload(storage, "a", source, METADATA)

    storage.download("a", tmp_path / "target", lambda name: name.startswith("optimizer/"))

    names = {str(path.relative_to(tmp_path / "target")) for path in (tmp_path / "target").rglob("*") if path.is_file()}
    assert names == {"optimizer/state ünï %41+#?.bin", "metadata.json", ".manifest.json"}


@EVERYWHERE
def test_a_partial_delete_keeps_a_true_manifest(open_storage: Callable[[], Storage], source: Path) -> None:
    """After a partial deletion the manifest lists only what is left."""
    upload(open_storage(), "a", source, METADATA)

    remaining = open_storage().delete("a", ["optimizer"])

    assert remaining == open_storage().verify("a").resources
    assert remaining.keys() == {"metadata.json", "model.bin", "nothing"}


@EVERYWHERE
def test_a_deleted_checkpoint_is_gone(open_storage: Callable[[], Storage], source: Path) -> None:
    """A deleted checkpoint is gone, and a second deletion raises CheckpointNotFoundError."""
    for storage_id in ("a", "ab"):
        upload(open_storage(), storage_id, source, METADATA)

    assert open_storage().delete("a") == {}

    assert checkpoint_ids(open_storage()) == ["ab"]
    open_storage().verify("ab")
    with pytest.raises(CheckpointNotFoundError):
        open_storage().delete("a")


@EVERYWHERE
def test_ranks_store_one_checkpoint_together(open_storage: Callable[[], Storage], source: Path) -> None:
    """Ranks store one checkpoint together, which is visible after the chief's commit."""
    with open_storage().stage("a", is_shared=True) as chief, open_storage().stage("a", is_shared=True) as other:
        other.check_reachable(chief.address)
        (chief.path / "rank0").write_bytes(b"0" * 5_000)
        other.fill(source)
        shards = [chief.seal(), other.seal()]
        union = unite(shards)
        other.contribute(union.names_of(1), chief.address)
        chief.contribute(union.names_of(0), chief.address)
        assert checkpoint_ids(open_storage()) == []

        chief.commit(union, METADATA)

    assert not file_conflicts(shards)
    assert open_storage().verify("a").ranks == (0, 1)
    with open_storage().open("a") as path:
        assert tree(path) == {**tree(source), "rank0": b"0" * 5_000}


def test_a_rank_that_gives_up_leaves_nothing(open_storage: Callable[[], Storage], source: Path) -> None:
    """If ranks give up, no checkpoint is stored."""
    with (
        pytest.raises(CheckpointConflictError),
        open_storage().stage("a", is_shared=True) as chief,
        open_storage().stage("a", is_shared=True) as other,
    ):
        (chief.path / "rank0").write_bytes(b"0")
        other.fill(source)
        shards = [chief.seal(), other.seal()]
        other.contribute(unite(shards).names_of(1), chief.address)
        raise CheckpointConflictError({"a": (0, 1)}, {})

    assert checkpoint_ids(open_storage()) == []


@pytest.mark.parametrize("by", ["writing", "uploading"])
def test_links_to_directories_are_kept(storage: Storage, tmp_path: Path, by: str) -> None:
    """Links to directories are stored as relative links and are deleted with their targets."""
    with storage.stage("id") as staging:
        root = staging.path if by == "writing" else tmp_path / "source"
        (root / "deep").mkdir(parents=True)
        for name in ("step_1", "step_2"):
            (root / name).mkdir()
            (root / name / "model.bin").write_bytes(name.encode())
        (root / "latest").symlink_to("step_2")
        (root / "deep" / "first").symlink_to(root / "step_1")
        (root / "again").symlink_to("latest")
        if by == "uploading":
            staging.fill(root)
        store_alone(staging, METADATA)
    links = {"latest": "step_2", "deep/first": "../step_1", "again": "step_2"}

    storage.download("id", tmp_path / "copy")
    storage.download("id", tmp_path / "copy")
    with storage.open("id") as path:
        opened = {name: str((path / name).readlink()) for name in links}
    manifest = storage.verify("id")
    storage.delete("id", ["step_1"])

    assert opened == links == manifest.links_by_name
    assert {name: str((tmp_path / "copy" / name).readlink()) for name in links} == links
    assert (tmp_path / "copy" / "latest" / "model.bin").read_bytes() == b"step_2"
    assert storage.verify("id").links_by_name == {"latest": "step_2", "again": "step_2"}
    assert storage.manifest("id").removed == ["deep/first", "step_1/", "step_1/model.bin"]


@promise("needed-checkpoints-kept")
@EVERYWHERE
def test_what_is_read_is_not_deleted(open_storage: Callable[[], Storage], source: Path, tmp_path: Path) -> None:
    """A checkpoint that a process is reading is not deleted until it has finished."""
    reader, deleter = open_storage(), open_storage()
    upload(reader, "id", source, METADATA)
    refusals = []

    def try_to_delete(name: str = "") -> bool:
        try:
            with deleter.deleting("id"):
                deleter.delete("id")
        except CheckpointProtectedError as error:
            refusals.append(error.reasons)
        return True

    reader.download("id", tmp_path / "copy", lambda name: name != "nothing" or try_to_delete())
    reader.verify("id", lambda name: name != "nothing" or try_to_delete())
    with reader.open("id") as path:  # a copy, if it is a bucket's
        with contextlib.suppress(CheckpointNotFoundError):
            try_to_delete()
        content = (path / "model.bin").read_bytes()
    with contextlib.suppress(CheckpointNotFoundError):
        try_to_delete()

    assert content == (source / "model.bin").read_bytes()
    assert set(refusals) == {("a process is reading it",)}
    assert len(refusals) == (3 if isinstance(reader, DirectoryStorage) else 2)
    assert checkpoint_ids(reader) == []


@pytest.mark.parametrize("name", ["metadata.json", ".manifest.json"])
def test_our_names_are_reserved(storage: Storage, source: Path, name: str) -> None:
    """A file that would be hidden by ours is refused before anything is stored."""
    (source / name).touch()

    with pytest.raises(ValueError, match="Core SDK's own"):
        upload(storage, "a", source, METADATA)
    with storage.stage("b") as staging, pytest.raises(ValueError, match="Core SDK's own"):
        (staging.path / name).touch()
        store_alone(staging, METADATA)

    assert checkpoint_ids(storage) == []


@pytest.mark.parametrize("storage_id", ["", ".", "..", "../a", "a/b", ".hidden", "a\\b", "a\0"])
def test_no_id_leaves_the_storage(storage: Storage, source: Path, tmp_path: Path, storage_id: str) -> None:
    """A hostile storage id is refused by every call."""
    for call in (
        lambda: storage.stage(storage_id),
        lambda: storage.stage(storage_id, is_shared=True),
        lambda: upload(storage, storage_id, source, METADATA),
        lambda: storage.download(storage_id, tmp_path / "target"),
        lambda: storage.manifest(storage_id),
        lambda: storage.verify(storage_id),
        lambda: storage.check(storage_id),
        lambda: storage.delete(storage_id),
        lambda: storage.delete(storage_id, ["*"]),
    ):
        with pytest.raises(UnsafePathError):
            call()


def test_a_full_disk_is_told_before_a_download(storage: Storage, source: Path, small_disk: Path) -> None:
    """A download that does not fit is refused and leaves no manifest."""
    with (source / "large.bin").open("wb") as file:
        file.truncate(2_000_000)
    upload(storage, "a", source, METADATA)

    with pytest.raises(NotEnoughSpaceError):
        storage.download("a", small_disk / "target")

    assert not (small_disk / "target" / ".manifest.json").exists()
