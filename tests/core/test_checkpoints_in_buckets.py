"""The whole of a checkpoint context on buckets: several ranks on nodes that share no disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from buckets.opening import bucket_at
from buckets.servers import BucketServer
from core.rank_threads import Rank, Trial
from saving import checkpoint_ids

from core_sdk._home.storage import Storage
from core_sdk._home.storage.bucket import BucketStorage
from core_sdk.core import DownloadMode
from core_sdk.errors import CheckpointConflictError, CheckpointNotFoundError

SERVERS = ["strict GCS", "moto", "Azurite"]


class BucketTrial(Trial):
    """A trial of four ranks on two nodes; each rank has a private directory for temporary files."""

    def __init__(self, folder: Path, url: str, opened: contextlib.ExitStack) -> None:
        super().__init__(folder, num_ranks=4, num_nodes=2)
        self._url = url
        self._temp_dir = folder / "temp"
        self._opened = opened

    def open_storage(self, rank: int) -> Storage:
        storage = BucketStorage(bucket_at(self._url), temp_dir=self._temp_dir / str(rank))
        return self._opened.enter_context(contextlib.closing(storage))

    def temporary_files(self) -> list[Path]:
        return [path for path in self._temp_dir.rglob("*") if path.is_file()]


@pytest.fixture(params=SERVERS)
def trial(
    request: pytest.FixtureRequest,
    start_server: Callable[[str], BucketServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[BucketTrial]:
    server = start_server(request.param)
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    with contextlib.ExitStack() as opened:
        yield BucketTrial(tmp_path / "trial", server.make_bucket(), opened)


def store_together(rank: Rank, *, wait: bool = True) -> str:
    with rank.checkpoint.store_path({"steps_completed": 3}, shard=True, wait=wait) as (path, storage_id):
        (path / f"rank{rank.number}.bin").write_bytes(b"%d" % rank.number)
        (path / "shared").mkdir()
        (path / "shared" / "config").write_bytes(b"same")
    return storage_id


@pytest.mark.parametrize("wait", [True, False], ids=["in the foreground", "in the background"])
def test_ranks_without_a_common_disk_store_one_checkpoint(trial: BucketTrial, wait: bool) -> None:
    """Every rank restores what all have written, from one download per node or one per rank."""

    def script(rank: Rank) -> tuple[str, Path, dict[str, bytes]]:
        storage_id = store_together(rank, wait=wait)
        with rank.checkpoint.restore_path(storage_id) as shared_path:
            content = {path.name: path.read_bytes() for path in shared_path.rglob("*.bin")}
        with rank.checkpoint.restore_path(storage_id, DownloadMode.NoSharedDownload) as own_path:
            assert own_path != shared_path
            assert (own_path / "shared" / "config").read_bytes() == b"same"
        return storage_id, shared_path, content

    ids, paths, contents = zip(*trial.run(script), strict=True)

    assert len(set(ids)) == 1
    assert paths[0] == paths[1] != paths[2] == paths[3]
    assert all(content == {f"rank{number}.bin": b"%d" % number for number in range(4)} for content in contents)
    assert len(trial.records(0)) == 1
    assert trial.temporary_files() == []


def test_ranks_download_what_any_of_their_node_selects(trial: BucketTrial, tmp_path: Path) -> None:
    """A download fills one directory per node with the files selected by its ranks and the metadata."""

    def script(rank: Rank) -> str:
        storage_id = store_together(rank)
        rank.checkpoint.download(
            storage_id, tmp_path / f"node{rank.number // 2}", selector=lambda name: name == f"rank{rank.number}.bin"
        )
        return storage_id

    trial.run(script)

    for node, names in enumerate([{"rank0.bin", "rank1.bin"}, {"rank2.bin", "rank3.bin"}]):
        found = {path.name for path in (tmp_path / f"node{node}").iterdir()}
        assert found == names | {"metadata.json", ".manifest.json"}


def test_a_conflict_of_ranks_leaves_nothing_in_the_bucket(trial: BucketTrial) -> None:
    """All ranks raise the same error, which names the file, and nothing is stored."""

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / "weights").write_bytes(b"%d" % rank.number)

    outcomes = trial.attempt(script)

    for rank in range(4):
        with pytest.raises(CheckpointConflictError, match="weights"):
            raise outcomes.errors[rank]
    assert checkpoint_ids(trial.open_storage(0)) == []
    assert trial.temporary_files() == []


def test_a_part_of_a_checkpoint_is_deleted_and_then_all(trial: BucketTrial, tmp_path: Path) -> None:
    """After a partial deletion the remaining files and the metadata are still read and verified."""

    def script(rank: Rank) -> None:
        storage_id = store_together(rank)
        if rank.number:
            return
        rank.checkpoint.delete(storage_id, globs=["shared", "rank[12].bin"])
        rank.checkpoint.download(storage_id, tmp_path / "rest", DownloadMode.NoSharedDownload)
        assert rank.checkpoint.get_metadata(storage_id) == {"steps_completed": 3}
        rank.checkpoint.delete(storage_id)
        with pytest.raises(CheckpointNotFoundError):
            rank.checkpoint.get_metadata(storage_id)

    trial.run(script)

    assert {path.name for path in (tmp_path / "rest").glob("[!.]*")} == {"rank0.bin", "rank3.bin", "metadata.json"}
