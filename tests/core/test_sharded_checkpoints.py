"""Checkpoints of several ranks: one id, one union, one outcome."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from core.rank_threads import Rank, Trial
from processes import wait_for
from promises import promise
from saving import checkpoint_ids

from core_sdk._ground.records import CheckpointStored, Manifest
from core_sdk._home.storage import DirectoryStorage, Selector, Shard, ShardUnion, Staging, Storage
from core_sdk._home.storage._staging_area import LockedDirectory
from core_sdk._home.storage.directory._staging import DirectoryStaging
from core_sdk.core import DistributedContext, DownloadMode
from core_sdk.errors import (
    CheckpointConflictError,
    CheckpointDamagedError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointNotStoredError,
    JournalError,
    NotEnoughSpaceError,
    RankFailedError,
    UnsafePathError,
)

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """Returns a trial of two ranks on one node."""
    return Trial(tmp_path / "trial", num_ranks=2)


@pytest.fixture
def big_trial(tmp_path: Path) -> Trial:
    """Returns a trial of four ranks on one node."""
    return Trial(tmp_path / "trial", num_ranks=4)


def only_on(rank: Rank, number: int, value: Any) -> Any:
    return value if rank.number == number else None


def store(trial: Trial, steps_completed: int = 3) -> str:
    """Stores a checkpoint with one file from each rank and a file that all ranks share."""

    def script(rank: Rank) -> str:
        with rank.checkpoint.store_path({"steps_completed": steps_completed}, shard=True) as (path, storage_id):
            (path / f"rank{rank.number}.bin").write_bytes(b"%d" % rank.number)
            (path / "shared").mkdir()
            (path / "shared" / "config").write_bytes(b"same")
        return storage_id

    return trial.run(script)[0]


def assert_nothing_was_stored(trial: Trial) -> None:
    assert checkpoint_ids(trial.storage) == []
    assert trial.left_over() == []
    assert [record for rank in range(trial.num_ranks) for record in trial.records(rank)] == []


def test_ranks_store_one_checkpoint_together(big_trial: Trial) -> None:
    """All ranks get the same id, and the manifest lists the files and the ranks that wrote them."""

    def script(rank: Rank) -> str:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, storage_id):
            if rank.number != 2:
                (path / f"rank{rank.number}.bin").write_bytes(b"%d" % rank.number)
            (path / "optimizer").mkdir()
        return storage_id

    storage_ids = big_trial.run(script)

    (storage_id,) = set(storage_ids)
    manifest = big_trial.storage.verify(storage_id)
    assert set(manifest.resources) == {"metadata.json", "optimizer/", "rank0.bin", "rank1.bin", "rank3.bin"}
    assert manifest.ranks == (0, 1, 3)
    assert (big_trial.storage.root / storage_id / "rank3.bin").read_bytes() == b"3"
    assert big_trial.left_over() == []


def test_the_chief_alone_records_it(trial: Trial) -> None:
    """Only the chief records the checkpoint, with the metadata and files of all ranks."""

    def script(rank: Rank) -> str:
        metadata = {"steps_completed": 3} if rank.number == 0 else {"loss": math.nan}
        with rank.checkpoint.store_path(metadata, shard=True) as (path, storage_id):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")
        return storage_id

    storage_id = trial.run(script)[0]

    (record,) = trial.records(0)
    assert isinstance(record, CheckpointStored)
    assert (record.storage_id, record.steps_completed, record.storage) == (storage_id, 3, trial.storage.url)
    assert record.resources.keys() == {"metadata.json", "rank0.bin", "rank1.bin"}
    assert record.metadata.keys() == {"steps_completed", "loss"}
    assert trial.records(1) == []


@promise("sharded-checkpoint-whole")
def test_no_rank_goes_on_before_the_checkpoint_is_stored_and_recorded(big_trial: Trial) -> None:
    """When the call returns on any rank, the checkpoint is stored and recorded."""

    def script(rank: Rank) -> list[str]:
        stored = []
        for step in range(5):
            with rank.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, storage_id):
                (path / f"rank{rank.number}.bin").write_bytes(b"1234")
            assert storage_id in checkpoint_ids(big_trial.storage)
            assert len(big_trial.records(0)) > step
            stored.append(storage_id)
        return stored

    stored = big_trial.run(script)

    assert stored[0] == stored[1] == stored[2] == stored[3]
    assert sorted(stored[0]) == checkpoint_ids(big_trial.storage)


def test_no_rank_sees_what_another_writes(trial: Trial) -> None:
    """Each rank writes to its own directory, so that no file is overwritten silently."""

    def script(rank: Rank) -> tuple[Path, list[Path]]:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / "config").write_bytes(b"same")
            rank.distributed.allgather("written")
            return path, list(path.iterdir())

    seen = trial.run(script)

    assert seen[0][0] != seen[1][0]
    assert [files for _, files in seen] == [[path / "config"] for path, _ in seen]


def test_equal_files_are_one(trial: Trial) -> None:
    """Ranks may write equal files, which are stored once, and the manifest lists all ranks that wrote."""
    storage_id = store(trial)

    manifest = trial.storage.verify(storage_id)

    assert set(manifest.resources) == {"metadata.json", "rank0.bin", "rank1.bin", "shared/", "shared/config"}
    assert manifest.ranks == (0, 1)


def test_one_name_for_different_files_is_an_error_everywhere(big_trial: Trial) -> None:
    """All ranks raise an error with the names and ranks, also if a file conflicts with a directory."""

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")
            if rank.number in (1, 3):
                (path / "model.bin").write_bytes(b"%d" % rank.number)
            if rank.number == 0:
                (path / "optimizer").mkdir()
            if rank.number == 2:
                (path / "optimizer").write_bytes(b"1234")

    errors = big_trial.attempt(script).errors

    assert len(errors) == 4
    for error in errors.values():
        assert isinstance(error, CheckpointConflictError)
        assert error.files == {"model.bin": (1, 3), "optimizer": (0, 2)}
        assert "'model.bin' (ranks 1, 3), 'optimizer' (ranks 0, 2)" in str(error)
    assert_nothing_was_stored(big_trial)


def test_metadata_is_merged(big_trial: Trial) -> None:
    """Metadata is merged across ranks; only one must give the steps, and others may give None."""
    metadata: list[dict[str, Any] | None] = [
        None,
        {"steps_completed": 3, "data": {"seen": 5}},
        {"data": {"shards": [1, 2]}, "loss": math.inf},
        {"loss": math.inf, "steps_completed": 3},
    ]

    def script(rank: Rank) -> dict[str, Any]:
        with rank.checkpoint.store_path(metadata[rank.number], shard=True) as (path, storage_id):
            (path / "model.bin").write_bytes(b"the same")
        return rank.checkpoint.get_metadata(storage_id)

    read_back = big_trial.run(script)

    expected = {"steps_completed": 3, "data": {"seen": 5, "shards": [1, 2]}, "loss": math.inf}
    assert read_back == [expected] * 4


def test_metadata_may_grow_on_any_rank_inside_the_block(trial: Trial) -> None:
    """Metadata that any rank adds inside the block is stored."""

    def script(rank: Rank) -> dict[str, Any]:
        metadata = {"steps_completed": 3}
        with rank.checkpoint.store_path(metadata, shard=True) as (path, storage_id):
            (path / "model.bin").write_bytes(b"the same")
            metadata[f"rank{rank.number}"] = rank.number
        return rank.checkpoint.get_metadata(storage_id)

    assert trial.run(script)[0] == {"steps_completed": 3, "rank0": 0, "rank1": 1}


def never_entered(rank: Rank, metadata: Any, shard: bool = True) -> None:
    with rank.checkpoint.store_path(metadata, shard=shard):
        raise AssertionError("the block was entered")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ([None, None], "steps_completed.*missing"),
        ([{}, {"steps": 3}], "steps_completed.*missing"),
        ([{"steps_completed": -1}, None], "-1"),
        ([None, {"steps_completed": True}], "True"),
        ([{"steps_completed": 3}, {"steps_completed": 4}], "'/steps_completed' \\(ranks 0, 1\\)"),
        ([{"steps_completed": 3, "o": {"lr": 1}}, {"o": {"lr": 1.0}}], "'/o/lr' \\(ranks 0, 1\\)"),
    ],
)
def test_bad_metadata_is_refused_on_every_rank_before_anything_is_written(
    trial: Trial, metadata: list[Any], message: str
) -> None:
    """Bad metadata on any rank raises on all ranks before the block."""
    errors = trial.attempt(lambda rank: never_entered(rank, metadata[rank.number])).errors

    for rank in range(2):
        assert isinstance(errors[rank], ValueError)
        with pytest.raises(ValueError, match=message):
            raise errors[rank]
    assert not trial.storage.root.exists()


def test_metadata_spoiled_inside_the_block_stores_nothing(trial: Trial) -> None:
    """Metadata is merged again at the end of the block, and a contradiction stores nothing."""

    def script(rank: Rank) -> None:
        metadata = {"steps_completed": 3}
        with rank.checkpoint.store_path(metadata, shard=True) as (path, _):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")
            metadata["steps_completed"] += rank.number

    errors = trial.attempt(script).errors

    for rank in range(2):
        assert isinstance(error := errors[rank], CheckpointConflictError)
        assert error.metadata == {"/steps_completed": (0, 1)}
    assert_nothing_was_stored(trial)


@promise("sharded-checkpoint-whole")
@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), KeyboardInterrupt("mine"), SystemExit("mine")])
def test_a_block_that_raises_on_one_rank_fails_on_all(trial: Trial, failing: int, error: BaseException) -> None:
    """The failing rank raises its own error; the others raise one with its rank and traceback."""

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")
            if rank.number == failing:
                raise error

    errors = trial.attempt(script).errors

    assert errors[failing] is error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "script"
    assert "_together" not in "".join(traceback.format_exception(error))
    other = errors[1 - failing]
    assert isinstance(other, RankFailedError)
    assert other.rank == failing
    assert "mine" in other.error_text
    assert "raise error" in other.traceback_text
    assert_nothing_was_stored(trial)


def test_ranks_may_go_on_after_a_failed_save(trial: Trial) -> None:
    """After a failed save the ranks are in step and can save again."""

    def script(rank: Rank) -> str:
        with (
            contextlib.suppress(OSError, RankFailedError),
            rank.checkpoint.store_path({"steps_completed": 3}, shard=True),
        ):
            if rank.number == 1:
                raise OSError("a passing trouble")
        with rank.checkpoint.store_path({"steps_completed": 4}, shard=True) as (path, storage_id):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")
        return storage_id

    storage_id = trial.run(script)[0]

    assert checkpoint_ids(trial.storage) == [storage_id]


Event = Callable[[str], None]
"""Gets the chief's address, where the step has one."""


class EventfulStaging(DirectoryStaging):
    """A staging area that runs a function just before one of its steps."""

    def __init__(self, root: Path, locked: LockedDirectory, storage_id: str, step: str, event: Event) -> None:
        super().__init__(root, locked, storage_id)
        self._step = step
        self._event = event

    def check_reachable(self, address: str) -> None:
        self._begin("check_reachable", address)
        super().check_reachable(address)

    def seal(self) -> Shard:
        self._begin("seal")
        return super().seal()

    def contribute(self, names: Sequence[str], address: str) -> None:
        self._begin("contribute", address)
        super().contribute(names, address)

    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        self._begin("commit")
        return super().commit(union, metadata)

    def _begin(self, step: str, address: str = "") -> None:
        if step == self._step:
            self._event(address)


class EventfulStorage(DirectoryStorage):
    def __init__(self, root: Path, step: str, event: Event) -> None:
        super().__init__(root)
        self._step = step
        self._event = event

    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        if self._step == "stage":
            self._event("")
        return EventfulStaging(self.root, self._area.new_directory(), storage_id, self._step, self._event)


class EventfulTrial(Trial):
    """A trial of three ranks, of which some run a function before a step of the save."""

    def __init__(self, folder: Path, step: str, events: Mapping[int, Event]) -> None:
        super().__init__(folder, num_ranks=3)
        self._step = step
        self._events = events

    def open_storage(self, rank: int) -> Storage:
        if rank in self._events:
            return EventfulStorage(self.storage.root, self._step, self._events[rank])
        return super().open_storage(rank)


def fail(address: str) -> None:
    raise CheckpointNotStoredError("the id", "the storage", "the disk failed")


@promise("sharded-checkpoint-whole")
@pytest.mark.parametrize(
    ("failing", "step"),
    [*itertools.product([0, 1], ["stage", "check_reachable", "seal", "contribute"]), (0, "commit")],
)
def test_a_disk_that_fails_one_rank_fails_all(tmp_path: Path, failing: int, step: str) -> None:
    """A disk error on one rank, in any step, fails all ranks and leaves nothing."""
    trial = EventfulTrial(tmp_path / "trial", step, {failing: fail})

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")

    errors = trial.attempt(script).errors

    assert isinstance(errors[failing], CheckpointNotStoredError)
    for rank in {0, 1, 2} - {failing}:
        assert isinstance(error := errors[rank], RankFailedError)
        assert error.rank == failing
        assert "the disk failed" in str(error)
    assert_nothing_was_stored(trial)


@pytest.mark.parametrize("step", ["check_reachable", "contribute"])
def test_a_rank_that_comes_when_the_chief_has_given_up_learns_why(tmp_path: Path, step: str) -> None:
    """A rank that is late learns the true reason of the failure, not that a directory is gone."""
    contexts: dict[int, DistributedContext] = {}
    area = tmp_path / "trial" / "checkpoints" / ".staging"
    trial = EventfulTrial(
        tmp_path / "trial",
        step,
        {
            1: lambda address: wait_for(lambda: not (area / address).exists()),
            2: lambda address: contexts[2].close(ZeroDivisionError("the reason")),
        },
    )

    def script(rank: Rank) -> None:
        contexts[rank.number] = rank.distributed
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / f"rank{rank.number}.bin").write_bytes(b"1234")

    errors = trial.attempt(script).errors

    for rank in (0, 1):
        assert isinstance(error := errors[rank], RankFailedError)
        assert (error.rank, "the reason" in error.error_text) == (2, True)
    assert_nothing_was_stored(trial)


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda path: (path / "metadata.json").write_text("mine"), ValueError),
        (lambda path: (path / "link").symlink_to("/etc/passwd"), UnsafePathError),
    ],
    ids=["reserved name", "link outside"],
)
def test_a_file_that_cannot_be_kept_fails_all(
    trial: Trial, spoil: Callable[[Path], object], kind: type[Exception]
) -> None:
    """A file that cannot be stored fails the save, whichever rank wrote it."""

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            if rank.number == 1:
                spoil(path)

    errors = trial.attempt(script).errors

    assert isinstance(errors[1], kind)
    assert isinstance(errors[0], RankFailedError)
    assert kind.__name__ in str(errors[0])
    assert_nothing_was_stored(trial)


class ScatteredTrial(Trial):
    """A trial in which each rank has its own disk, like hosts without a shared file system."""

    def open_storage(self, rank: int) -> Storage:
        storage = DirectoryStorage(self.storage.root / f"disk{rank}")
        storage.check_writable()
        return storage


def test_hosts_that_share_no_disk_are_told_before_the_block(tmp_path: Path) -> None:
    """If hosts share no disk, all ranks raise an error before the block that names the rank and its host."""
    trial = ScatteredTrial(tmp_path / "trial", num_ranks=2)

    errors = trial.attempt(lambda rank: never_entered(rank, {"steps_completed": 3})).errors

    assert isinstance(errors[1], CheckpointNotStoredError)
    assert isinstance(errors[0], RankFailedError)
    assert errors[0].rank == 1
    for error in errors.values():
        assert f"{os.uname().nodename} does not see" in str(error)
        assert "disk1" in str(error)


class SmallDiskTrial(Trial):
    def __init__(self, folder: Path, disk: Path, num_ranks: int) -> None:
        super().__init__(folder, num_ranks)
        self.storage = DirectoryStorage(disk)


@pytest.mark.parametrize("writer", [0, 1])
def test_a_disk_that_fills_in_one_ranks_block_leaves_nothing(tmp_path: Path, small_disk: Path, writer: int) -> None:
    """If the disk fills on one rank, all ranks raise, nothing is left, and the next save succeeds."""
    trial = SmallDiskTrial(tmp_path / "trial", small_disk, num_ranks=2)

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            (path / f"rank{rank.number}.bin").write_bytes(bytes(1000))
            rank.distributed.allgather("written")
            if rank.number == writer:
                (path / "model.bin").write_bytes(bytes(2 << 20))

    errors = trial.attempt(script).errors

    assert isinstance(errors[writer], NotEnoughSpaceError)
    assert isinstance(errors[1 - writer], RankFailedError)
    assert "bytes free and the checkpoint needs" in str(errors[1 - writer])
    assert_nothing_was_stored(trial)
    trial.storage.verify(store(trial))


@pytest.mark.parametrize("writer", [0, 1])
def test_a_disk_that_fills_at_the_end_leaves_nothing(tmp_path: Path, small_disk: Path, writer: int) -> None:
    """A disk that is filled exactly by a rank's files leaves nothing when the manifest does not fit."""
    trial = SmallDiskTrial(tmp_path / "trial", small_disk, num_ranks=2)

    def script(rank: Rank) -> None:
        with rank.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, _):
            if rank.number == writer:
                status = os.statvfs(small_disk)
                (path / "model.bin").write_bytes(bytes(status.f_bavail * status.f_frsize))
            rank.distributed.allgather("written")

    errors = trial.attempt(script).errors

    assert isinstance(errors[0], NotEnoughSpaceError)
    assert isinstance(errors[1], RankFailedError)
    assert_nothing_was_stored(trial)


def test_without_shard_only_the_chief_calls(trial: Trial) -> None:
    """Without shard=True, other ranks are refused at the call, and the chief saves alone."""

    def script(rank: Rank) -> str | None:
        if rank.number == 0:
            with rank.checkpoint.store_path({"steps_completed": 3}) as (_, storage_id):
                return storage_id
        with pytest.raises(RuntimeError, match="rank 1; without shard=True only the chief"):
            rank.checkpoint.store_path({"steps_completed": 3})
        with pytest.raises(RuntimeError, match="rank 1; without shard=True only the chief"):
            rank.checkpoint.upload(None, {"steps_completed": 3})
        return None

    storage_id = trial.run(script)[0]

    assert checkpoint_ids(trial.storage) == [storage_id]


@pytest.mark.parametrize("forking", [0, 1])
def test_a_child_forked_in_the_block_stores_nothing(trial: Trial, forking: int) -> None:
    """A forked child that leaves the block stores nothing and does not disturb the other ranks."""

    def script(rank: Rank) -> int | None:
        exit_status = None
        block = rank.checkpoint.store_path({"steps_completed": 3}, shard=True)
        path, _ = block.__enter__()
        (path / f"rank{rank.number}.bin").write_bytes(b"half")
        if rank.number == forking:
            exit_status = exit_status_of_fork(block)
        (path / f"rank{rank.number}.bin").write_bytes(b"whole")
        block.__exit__(None, None, None)
        return exit_status

    exit_status = trial.run(script)[forking]

    assert exit_status == 42
    (storage_id,) = checkpoint_ids(trial.storage)
    trial.storage.verify(storage_id)
    assert (trial.storage.root / storage_id / "rank1.bin").read_bytes() == b"whole"


def exit_status_of_fork(block: AbstractContextManager[object]) -> int:
    """Returns 42 if leaving the block in a forked child raises the expected error."""
    child = os.fork()
    if child == 0:
        try:
            block.__exit__(None, None, None)
        except JournalError:
            os._exit(42)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Returns a directory for each of four ranks, with one file of its own and one that is equal in all."""
    paths = [tmp_path / "sources" / str(rank) for rank in range(4)]
    for rank, path in enumerate(paths):
        (path / "optimizer").mkdir(parents=True)
        (path / "optimizer" / f"{rank}.bin").write_bytes(b"%d" % rank)
        (path / "config").write_bytes(b"same")
    return paths


def test_ranks_upload_one_checkpoint_together(big_trial: Trial, sources: list[Path]) -> None:
    """A rank may upload nothing, and the source directories are unchanged."""

    def script(rank: Rank) -> str:
        source = None if rank.number == 2 else sources[rank.number]
        return rank.checkpoint.upload(source, only_on(rank, 1, {"steps_completed": 3}), shard=True)

    storage_ids = big_trial.run(script)

    (storage_id,) = set(storage_ids)
    manifest = big_trial.storage.verify(storage_id)
    assert set(manifest.resources) == {
        "config", "metadata.json", "optimizer/", "optimizer/0.bin", "optimizer/1.bin", "optimizer/3.bin",
    }  # fmt: skip
    assert manifest.ranks == (0, 1, 3)
    assert len(big_trial.records(0)) == 1
    assert sorted(path.name for path in sources[1].rglob("*")) == ["1.bin", "config", "optimizer"]
    assert big_trial.left_over() == []


def test_a_directory_that_all_ranks_pass_is_stored_once(big_trial: Trial, sources: list[Path]) -> None:
    """The lowest rank stores a directory that all pass, after the last rank has called."""
    is_read = threading.Event()

    def watch(name: str) -> bool:
        is_read.set()
        return True

    def script(rank: Rank) -> tuple[str, str]:
        common = rank.checkpoint.upload(sources[0], {"steps_completed": 3}, shard=True)
        if rank.number == 3:
            assert not is_read.wait(0.2), "a rank has read before all have called"
            (sources[0] / "late.bin").write_bytes(b"1234")
        selected = rank.checkpoint.upload(sources[0], {"steps_completed": 4}, shard=True, selector=watch)
        return common, selected

    common, selected = big_trial.run(script)[0]

    assert big_trial.storage.verify(common).ranks == (0,)
    assert "late.bin" in big_trial.storage.verify(selected).resources


def test_each_rank_selects_of_its_own(big_trial: Trial, sources: list[Path]) -> None:
    """Each rank's selector applies to its own upload, and a rank without a selector uploads everything."""

    def script(rank: Rank) -> tuple[str, str]:
        mine = f"{rank.number}.bin"
        own = rank.checkpoint.upload(
            sources[rank.number], {"steps_completed": 3}, shard=True, selector=lambda name: name.endswith(mine)
        )
        common = rank.checkpoint.upload(
            sources[0], {"steps_completed": 4}, shard=True, selector=only_on(rank, 1, lambda name: name == "config")
        )
        return own, common

    own, common = big_trial.run(script)[0]

    names = {"metadata.json", "optimizer/", *(f"optimizer/{rank}.bin" for rank in range(4))}
    assert set(big_trial.storage.verify(own).resources) == names
    assert set(big_trial.storage.verify(common).resources) == {
        "config", "metadata.json", "optimizer/", "optimizer/0.bin",
    }  # fmt: skip


def test_conflicting_uploads_are_refused(big_trial: Trial, sources: list[Path]) -> None:
    """Conflicting files are an error on every rank."""
    (sources[2] / "config").write_bytes(b"other")

    errors = big_trial.attempt(
        lambda rank: rank.checkpoint.upload(sources[rank.number], {"steps_completed": 3}, shard=True)
    ).errors

    for rank in range(4):
        assert isinstance(error := errors[rank], CheckpointConflictError)
        assert error.files == {"config": (0, 1, 2, 3)}
    assert_nothing_was_stored(big_trial)


def test_an_upload_without_any_directory_is_refused_everywhere(trial: Trial) -> None:
    """An upload is refused on all ranks if none of them gives a directory."""
    errors = trial.attempt(lambda rank: rank.checkpoint.upload(None, {"steps_completed": 3}, shard=True)).errors

    for rank in range(2):
        assert type(errors[rank]) is RuntimeError
        assert "from any rank" in str(errors[rank])


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"ckpt_dir": None, "selector": lambda name: True}, RuntimeError),
        ({"ckpt_dir": "absent"}, FileNotFoundError),
        ({"ckpt_dir": __file__}, NotADirectoryError),
        ({"metadata": {"model": object()}}, TypeError),
        ({"selector": lambda name: 1 / 0}, ZeroDivisionError),
    ],
    ids=["selector alone", "missing directory", "a file", "metadata", "failing selector"],
)
def test_one_ranks_bad_upload_fails_all(
    trial: Trial, sources: list[Path], arguments: dict[str, Any], kind: type[Exception]
) -> None:
    """A bad argument raises on its own rank and fails the others with that rank's number."""

    def script(rank: Rank) -> None:
        good: dict[str, Any] = {"ckpt_dir": sources[rank.number], "metadata": {"steps_completed": 3}}
        rank.checkpoint.upload(**(good | arguments if rank.number == 1 else good), shard=True)

    errors = trial.attempt(script).errors

    assert isinstance(errors[1], kind)
    assert isinstance(error := errors[0], RankFailedError)
    assert error.rank == 1
    assert kind.__name__ in str(error)
    assert_nothing_was_stored(trial)


class CountedStorage(DirectoryStorage):
    """A storage that counts reads and closed checkpoints."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.downloads: list[str] = []
        self.num_verified = 0
        self.num_closed = 0

    def download(self, storage_id: str, directory: Path, selector: Selector | None = None) -> None:
        self.downloads.append(directory.name)
        super().download(storage_id, directory, selector)

    @contextlib.contextmanager
    def open(self, storage_id: str, selector: Selector | None = None) -> Iterator[Path]:
        with super().open(storage_id, selector) as path:
            self.num_verified += 1
            yield path
        self.num_closed += 1


class CountedTrial(Trial):
    def __init__(self, folder: Path, num_ranks: int, num_nodes: int = 1) -> None:
        super().__init__(folder, num_ranks, num_nodes)
        self.opened = [CountedStorage(self.storage.root) for _ in range(num_ranks)]

    def open_storage(self, rank: int) -> CountedStorage:
        return self.opened[rank]


@pytest.fixture
def two_nodes(tmp_path: Path) -> CountedTrial:
    """Returns a trial of two ranks on each of two nodes that counts reads."""
    return CountedTrial(tmp_path / "trial", num_ranks=4, num_nodes=2)


def content(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()} - {".manifest.json"}


def test_a_download_is_shared_by_the_ranks_of_a_node(two_nodes: CountedTrial, tmp_path: Path) -> None:
    """One rank per node downloads, and no rank goes on before the files are there."""
    storage_id = store(two_nodes)

    def script(rank: Rank) -> set[str]:
        directory = tmp_path / f"node{rank.distributed.cross_rank}"
        rank.checkpoint.download(storage_id, directory)
        return content(directory)

    contents = two_nodes.run(script)

    expected = {"metadata.json", "shared/config", *(f"rank{rank}.bin" for rank in range(4))}
    assert contents == [expected] * 4
    assert [storage.downloads for storage in two_nodes.opened] == [["node0"], [], ["node1"], []]


def test_every_directory_that_a_rank_names_is_filled(big_trial: Trial, tmp_path: Path) -> None:
    """Each directory that a rank names is filled once, even if it is named by different paths."""
    storage_id = store(big_trial)
    trial = CountedTrial(tmp_path / "counted", num_ranks=4)
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    names = ["a", "b", "link", "b"]

    trial.storage = big_trial.storage
    trial.opened = [CountedStorage(big_trial.storage.root) for _ in range(4)]
    trial.run(lambda rank: rank.checkpoint.download(storage_id, tmp_path / names[rank.number]))

    assert content(tmp_path / "a") == content(tmp_path / "b") == content(big_trial.storage.root / storage_id)
    assert [storage.downloads for storage in trial.opened] == [["a"], ["b"], [], []]


def test_a_node_gets_what_any_of_its_ranks_accepts(two_nodes: CountedTrial, tmp_path: Path) -> None:
    """A node gets the files that any of its ranks selects; selectors see each name once and no metadata."""
    storage_id = store(two_nodes)
    asked: list[list[str]] = [[] for _ in range(4)]

    def script(rank: Rank) -> None:
        def only_mine(name: str) -> bool:
            asked[rank.number].append(name)
            return name == f"rank{rank.number}.bin"

        directory = tmp_path / f"node{rank.distributed.cross_rank}"
        rank.checkpoint.download(storage_id, directory, selector=only_mine)

    two_nodes.run(script)

    assert content(tmp_path / "node0") == {"metadata.json", "rank0.bin", "rank1.bin"}
    assert content(tmp_path / "node1") == {"metadata.json", "rank2.bin", "rank3.bin"}
    names = ["rank0.bin", "rank1.bin", "rank2.bin", "rank3.bin", "shared/", "shared/config"]
    assert asked == [names] * 4


def test_a_rank_without_a_selector_accepts_all(trial: Trial, tmp_path: Path) -> None:
    """A rank without a selector gets all files, whatever the other ranks select."""
    storage_id = store(trial)

    trial.run(
        lambda rank: rank.checkpoint.download(
            storage_id, tmp_path / "copy", selector=only_on(rank, 0, lambda name: False)
        )
    )

    assert content(tmp_path / "copy") == content(trial.storage.root / storage_id)


def test_a_restore_is_verified_once_and_used_by_all(two_nodes: CountedTrial) -> None:
    """A node verifies a checkpoint once, and its files stay until its last rank leaves the block."""
    storage_id = store(two_nodes)

    def script(rank: Rank) -> set[str]:
        with rank.checkpoint.restore_path(storage_id) as path:
            rank.distributed.allgather("entered")
            return content(path)

    contents = two_nodes.run(script)

    assert contents == [content(two_nodes.storage.root / storage_id)] * 4
    assert [storage.num_verified for storage in two_nodes.opened] == [1, 0, 1, 0]
    assert [storage.num_closed for storage in two_nodes.opened] == [1, 0, 1, 0]


def test_what_is_restored_stays_until_all_have_left(tmp_path: Path) -> None:
    """Restored files stay until all ranks have left, even if the rank that opened them leaves first."""
    trial = CountedTrial(tmp_path / "trial", num_ranks=2)
    storage_id = store(trial)
    is_chief_out = threading.Event()

    def script(rank: Rank) -> int | None:
        with rank.checkpoint.restore_path(storage_id):
            if rank.number == 1:
                assert not is_chief_out.wait(0.2)
                return trial.opened[0].num_closed
        is_chief_out.set()
        return None

    assert trial.run(script)[1] == 0
    assert trial.opened[0].num_closed == 1


def test_a_restore_verifies_what_any_rank_selects(trial: Trial) -> None:
    """Only files that a rank selects are verified, so that damage elsewhere does not matter."""
    storage_id = store(trial)
    (trial.storage.root / storage_id / "shared" / "config").write_bytes(b"damaged")

    def script(rank: Rank) -> bytes:
        mine = f"rank{rank.number}.bin"
        with rank.checkpoint.restore_path(storage_id, selector=lambda name: name == mine) as path:
            return (path / mine).read_bytes()

    assert trial.run(script) == [b"0", b"1"]


READS: list[Callable[[Rank, str, Path], object]] = [
    lambda rank, storage_id, directory: rank.checkpoint.download(storage_id, directory),
    lambda rank, storage_id, directory: rank.checkpoint.restore_path(storage_id).__enter__(),
    lambda rank, storage_id, directory: rank.checkpoint.download(storage_id, directory, selector=lambda name: True),
    lambda rank, storage_id, directory: rank.checkpoint.restore_path(
        storage_id, selector=lambda name: True
    ).__enter__(),
]
READ_IDS = ["download", "restore_path", "download with selector", "restore_path with selector"]


@pytest.mark.parametrize("read", READS, ids=READ_IDS)
def test_what_is_wrong_with_a_checkpoint_is_the_same_error_on_every_rank(
    trial: Trial, tmp_path: Path, read: Callable[[Rank, str, Path], object]
) -> None:
    """All ranks raise the same error, so that all fall back to the same earlier checkpoint."""
    storage_id = store(trial)
    (trial.storage.root / storage_id / "rank1.bin").write_bytes(b"X")

    def script(rank: Rank) -> list[CheckpointError]:
        errors = []
        for each in (storage_id, UNKNOWN_ID):
            with pytest.raises(CheckpointError) as raised:
                read(rank, each, tmp_path / "copy")
            errors.append(raised.value)
        return errors

    for damaged, unknown in trial.run(script):
        assert isinstance(damaged, CheckpointDamagedError)
        assert (damaged.storage_id, damaged.file) == (storage_id, "rank1.bin")
        assert isinstance(unknown, CheckpointNotFoundError)
        assert UNKNOWN_ID in str(unknown)


@pytest.mark.parametrize("read", READS, ids=READ_IDS)
def test_ranks_that_ask_for_different_checkpoints_are_told(
    trial: Trial, tmp_path: Path, read: Callable[[Rank, str, Path], object]
) -> None:
    """Ranks that ask for different checkpoints are refused."""
    ids = [store(trial), store(trial)]

    errors = trial.attempt(lambda rank: read(rank, ids[rank.number], tmp_path / "copy")).errors

    for rank in range(2):
        assert isinstance(errors[rank], ValueError)
        assert ids[0] in str(errors[rank])
        assert "NoSharedDownload" in str(errors[rank])


@pytest.mark.parametrize("read", READS, ids=READ_IDS)
def test_a_hostile_id_is_refused_by_the_rank_that_asks(
    trial: Trial, tmp_path: Path, read: Callable[[Rank, str, Path], object]
) -> None:
    """A hostile id is refused on its own rank and fails the others."""
    storage_id = store(trial)

    errors = trial.attempt(lambda rank: read(rank, only_on(rank, 0, storage_id) or "../x", tmp_path / "copy")).errors

    assert isinstance(errors[1], UnsafePathError)
    assert isinstance(errors[0], RankFailedError)


def test_a_selector_that_raises_fails_all(trial: Trial, tmp_path: Path) -> None:
    """An error in a selector is raised on its own rank and fails the others."""
    storage_id = store(trial)

    def script(rank: Rank) -> None:
        rank.checkpoint.download(storage_id, tmp_path / "copy", selector=lambda name: bool(1 / rank.number))

    errors = trial.attempt(script).errors

    assert isinstance(errors[0], ZeroDivisionError)
    assert isinstance(errors[1], RankFailedError)
    assert not (tmp_path / "copy").exists()


def test_a_restoring_block_that_raises_on_one_rank_fails_on_all(trial: Trial) -> None:
    """An error in one rank's block fails all ranks, so that all fall back to the same checkpoint."""
    storage_id = store(trial)

    def script(rank: Rank) -> None:
        with rank.checkpoint.restore_path(storage_id):
            if rank.number == 1:
                raise KeyError("weights")

    errors = trial.attempt(script).errors

    assert isinstance(errors[1], KeyError)
    assert isinstance(error := errors[0], RankFailedError)
    assert (error.rank, "weights" in error.error_text) == (1, True)


def test_without_sharing_each_rank_reads_alone(tmp_path: Path) -> None:
    """With NoSharedDownload a rank reads alone, without a call of the others."""
    trial = CountedTrial(tmp_path / "trial", num_ranks=2)
    storage_id = store(trial)
    alone = DownloadMode.NoSharedDownload

    def script(rank: Rank) -> set[str] | None:
        if rank.number == 0:
            return None
        rank.checkpoint.download(storage_id, tmp_path / "copy", alone, selector=lambda name: name == "rank0.bin")
        with rank.checkpoint.restore_path(storage_id, alone) as path:
            assert content(path) == content(trial.storage.root / storage_id)
        with pytest.raises(CheckpointNotFoundError):
            rank.checkpoint.restore_path(UNKNOWN_ID, alone).__enter__()
        return content(tmp_path / "copy")

    assert trial.run(script)[1] == {"metadata.json", "rank0.bin"}
    assert trial.opened[0].num_verified == 0


def test_ranks_that_download_alone_may_share_a_directory(big_trial: Trial, tmp_path: Path) -> None:
    """Ranks may download alone into one directory at the same time, and each finds all files."""
    storage_id = store(big_trial)

    def script(rank: Rank) -> set[str]:
        rank.checkpoint.download(storage_id, tmp_path / "copy", DownloadMode.NoSharedDownload)
        return content(tmp_path / "copy")

    contents = big_trial.run(script)

    expected = content(big_trial.storage.root / storage_id)
    assert all(names >= expected for names in contents)
    assert content(tmp_path / "copy") == expected


def test_a_bad_directory_fails_all(trial: Trial) -> None:
    """A bad directory on one rank raises on all ranks."""
    storage_id = store(trial)
    directory: Any = None

    errors = trial.attempt(
        lambda rank: rank.checkpoint.download(storage_id, only_on(rank, 0, "copy") or directory)
    ).errors

    assert isinstance(errors[1], TypeError)
    assert isinstance(errors[0], RankFailedError)
    assert "TypeError" in str(errors[0])


def test_any_rank_reads_metadata_and_deletes_alone(trial: Trial) -> None:
    """Any rank may read metadata and delete a checkpoint without a call of the others."""
    storage_id = store(trial)

    def script(rank: Rank) -> dict[str, Any] | None:
        if rank.number == 0:
            return None
        metadata = rank.checkpoint.get_metadata(storage_id)
        rank.checkpoint.delete(storage_id)
        return metadata

    assert trial.run(script)[1] == {"steps_completed": 3}
    assert checkpoint_ids(trial.storage) == []
