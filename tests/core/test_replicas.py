"""Replicas in the memory of the nodes: a checkpoint whose save did not end is not lost with the ranks."""

from __future__ import annotations

import logging
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from core.held_storage import Gate, HeldStorage
from core.rank_threads import Rank, Trial

from core_sdk.core import CheckpointContext
from core_sdk.core._checkpoint._replica_memory import Label, RankFiles, ReplicaMemory
from core_sdk.core._checkpoint._replicas import Replicas, newest_first, share_out
from core_sdk.errors import ArgumentConflictError, CheckpointNotStoredError, RankFailedError
from core_sdk.records import FileEntry
from core_sdk.storage import Storage


class Nodes(Trial):
    """Ranks of nodes that have a memory each, and whose saves fail from the commit on, if they are told so."""

    def __init__(self, folder: Path, num_ranks: int, num_nodes: int) -> None:
        super().__init__(folder, num_ranks, num_nodes)
        self.memories = [folder / f"node{node}" for node in range(num_nodes)]
        for memory in self.memories:
            memory.mkdir()
        self.gate = Gate(folder)
        self.gate.open()

    def open_storage(self, rank: int) -> Storage:
        return HeldStorage(self.storage.root, self.gate)

    def replicas(self, rank: Rank, attempt: int = 1) -> Replicas:
        memory = ReplicaMemory(self.memories[rank.distributed.cross_rank])
        return Replicas(rank.distributed, home="home", trial_id=1, attempt=attempt, memory=memory)

    def kept(self, node: int) -> list[Path]:
        return sorted(self.memories[node].iterdir())

    def files(self, node: int) -> list[Path]:
        """The checkpoint's files in a node's memory."""
        return sorted(path for path in self.memories[node].rglob("*.bin"))

    def save_in_vain(self) -> None:
        """All ranks store step 2, are refused at the end, and are gone."""

        def script(rank: Rank) -> None:
            checkpoint = checkpoint_of(rank, self.replicas(rank))
            save(rank, checkpoint, 1)
            rank.distributed.allgather("stored")
            self.gate.refuse()
            with pytest.raises((CheckpointNotStoredError, RankFailedError)):
                save(rank, checkpoint, 2, wait=False)
                checkpoint.wait()
            checkpoint.close()

        self.run(script)
        self.gate = Gate(self._folder, "later")
        self.gate.open()

    def recovered(self, newer_than: int = 1, first_attempt: int = 1) -> dict[str, bytes] | None:
        """What the next attempt brings: the files of all ranks together."""

        def script(rank: Rank) -> dict[str, bytes] | None:
            replicas = self.replicas(rank, 2)
            found = replicas.recover(newer_than, lambda: first_attempt)
            files = None
            if found is not None:
                directory = self._folder / f"found{rank.number}"
                directory.mkdir()
                found.copy_to(directory)
                files = {path.name: path.read_bytes() for path in directory.rglob("*.bin")}
                assert found.label.steps_completed == 2
            rank.distributed.allgather("read")
            replicas.remove_all()
            return files

        parts = self.run(script)
        found = [part for part in parts if part is not None]
        assert len(found) in (0, len(parts))
        return {name: content for part in found for name, content in part.items()} if found else None


def checkpoint_of(rank: Rank, replicas: Replicas) -> CheckpointContext:
    given = rank.checkpoint
    return CheckpointContext(given._storage, rank.distributed, given._journal, replicas=replicas)


def save(rank: Rank, checkpoint: CheckpointContext, step: int, *, wait: bool = True, replicas: int = 1) -> str:
    with checkpoint.store_path({"steps_completed": step}, shard=True, wait=wait, replicas=replicas) as (
        path,
        storage_id,
    ):
        (path / f"{rank.number}.bin").write_bytes(b"step %d of rank %d" % (step, rank.number))
    return storage_id


def expected(num_ranks: int) -> dict[str, bytes]:
    return {f"{rank}.bin": b"step 2 of rank %d" % rank for rank in range(num_ranks)}


@pytest.mark.parametrize(("num_ranks", "num_nodes"), [(4, 2), (3, 3)])
def test_a_save_that_did_not_end_is_found_in_the_memory_of_the_nodes(
    tmp_path: Path, num_ranks: int, num_nodes: int
) -> None:
    """With the files of all ranks; afterwards no memory is taken."""
    nodes = Nodes(tmp_path / "trial", num_ranks, num_nodes)
    nodes.save_in_vain()

    assert nodes.recovered() == expected(num_ranks)
    assert [nodes.kept(node) for node in range(num_nodes)] == [[]] * num_nodes


@pytest.mark.parametrize("lost", range(3))
def test_any_node_may_be_replaced(tmp_path: Path, lost: int) -> None:
    """The node after it has its files, too."""
    nodes = Nodes(tmp_path / "trial", 3, 3)
    nodes.save_in_vain()
    for path in nodes.kept(lost):
        shutil.rmtree(path)

    assert nodes.recovered() == expected(3)


def test_two_nodes_of_three_may_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says whose files are missing, and the training goes on from the storage."""
    nodes = Nodes(tmp_path / "trial", 3, 3)
    nodes.save_in_vain()
    for lost in (0, 1):
        for path in nodes.kept(lost):
            shutil.rmtree(path)

    assert nodes.recovered() is None
    assert "no node has the files of rank 0 as they were written" in caplog.text
    assert nodes.kept(2) == []


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip, tear, Path.unlink])
def test_a_damaged_replica_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    """The other node's takes its place; where both are damaged there is none, and none is left to be tried again."""
    nodes = Nodes(tmp_path / "trial", 2, 2)
    nodes.save_in_vain()
    damage(nodes.files(0)[0])
    assert nodes.recovered() == expected(2)
    assert "is removed" in caplog.text

    nodes = Nodes(tmp_path / "another", 2, 2)
    nodes.save_in_vain()
    for node in range(2):
        damage(nodes.files(node)[0])
    assert nodes.recovered() is None
    assert nodes.recovered() is None
    assert nodes.kept(0) == nodes.kept(1) == []


def test_only_what_is_newer_and_of_the_last_training_is_used(tmp_path: Path) -> None:
    """After an earlier attempt the training has gone on from another checkpoint."""
    for name, options in (("older", {"newer_than": 2}), ("superseded", {"first_attempt": 2})):
        nodes = Nodes(tmp_path / name, 2, 2)
        nodes.save_in_vain()

        assert nodes.recovered(**options) is None
        assert nodes.kept(0) == nodes.kept(1) == []


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A node has one replica, and none once the training has ended."""
    nodes = Nodes(tmp_path / "trial", 4, 2)
    seen: list[tuple[int, int]] = []

    def script(rank: Rank) -> None:
        checkpoint = checkpoint_of(rank, nodes.replicas(rank))
        for step in range(3):
            save(rank, checkpoint, step, wait=step % 2 == 0)
        checkpoint.wait()
        rank.distributed.allgather("stored")
        if rank.number == 0:
            seen.extend((len(nodes.kept(node)), len(nodes.files(node))) for node in range(2))
        rank.distributed.allgather("looked")
        checkpoint.close()

    nodes.run(script)

    assert seen == [(1, 4), (1, 4)]
    assert [nodes.kept(node) for node in range(2)] == [[], []]


def test_what_another_could_have_put_there_is_ignored(tmp_path: Path) -> None:
    """A link, a directory that others may enter, a file. What is ours, only we may read."""
    memory = ReplicaMemory(tmp_path)
    replica = memory.new(0)
    (tmp_path / "core-sdk-replica-link").symlink_to(replica.path)
    (tmp_path / "core-sdk-replica-open").mkdir(mode=0o755)
    (tmp_path / "core-sdk-replica-file").touch()
    with replica.new_file(0, "weights.bin") as file:
        file.write(b"1")

    assert [found.path for found in memory.found()] == [replica.path]
    assert stat.S_IMODE(replica.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(replica.path_of(0, "weights.bin").stat().st_mode) == 0o600


def test_a_label_with_names_that_lead_outside_is_no_label(tmp_path: Path) -> None:
    """Nothing is read or written there."""
    replica = ReplicaMemory(tmp_path).new(0)
    replica.complete(label(1, files={"../../secret": FileEntry(size_bytes=0, crc32c="00000000")}))

    assert replica.label() is None


def test_what_a_killed_save_has_left_is_swept(tmp_path: Path) -> None:
    """A replica that is not complete, as soon as its process has ended; not that of a living process."""
    memory = ReplicaMemory(tmp_path)
    living, dead = memory.new(0), memory.new(0)
    assert dead._lock is not None
    dead._lock.release()

    memory.sweep()

    assert [found.path for found in memory.found()] == [living.path]


def test_without_memory_the_checkpoint_is_stored_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning says once why there is no replica."""
    nodes = Nodes(tmp_path / "trial", 2, 2)
    nodes.memories[1].rmdir()

    def script(rank: Rank) -> list[str]:
        checkpoint = checkpoint_of(rank, nodes.replicas(rank))
        return [save(rank, checkpoint, step) for step in range(2)]

    with caplog.at_level(logging.WARNING):
        ids = nodes.run(script)[0]

    assert all(nodes.storage.verify(storage_id) for storage_id in ids)
    assert nodes.kept(0) == []
    warnings = [record.message for record in caplog.records if "there is no replica" in record.message]
    assert len(warnings) == 1
    assert "node 1" in warnings[0]


def test_ranks_that_do_not_agree_on_replicas_are_told(tmp_path: Path) -> None:
    """Before anything is written."""
    nodes = Nodes(tmp_path / "trial", 2, 2)

    def script(rank: Rank) -> None:
        save(rank, checkpoint_of(rank, nodes.replicas(rank)), 1, replicas=rank.number)

    errors = nodes.attempt(script).errors

    assert all(isinstance(errors[rank], ArgumentConflictError) for rank in range(2))


def label(steps: int, attempt: int = 1, files: dict[str, FileEntry] | None = None) -> Label:
    ranks = [RankFiles(files or {}, []), RankFiles({"a": FileEntry(size_bytes=1, crc32c="00000000")}, [])]
    return Label(
        home="home",
        trial_id=1,
        attempt=attempt,
        storage_id=f"at {steps}",
        steps_completed=steps,
        metadata={},
        ranks=ranks,
    )


def test_the_newest_comes_first() -> None:
    """Each once, of those that count."""
    labels = [label(1), label(3), label(2), label(3), label(4, attempt=1), label(9, attempt=0)]

    assert [each.steps_completed for each in newest_first(labels, 1, 1)] == [4, 3, 2]


def test_each_rank_s_files_are_brought_once() -> None:
    """A rank without files is not missed."""
    assert share_out(label(1), [[], [1], [1]]) == [[], [1], []]
    assert share_out(label(1), [[0], [1]]) == [[0], [1]]
    assert share_out(label(1), [[0], []]) == "no node has the files of rank 1 as they were written"
