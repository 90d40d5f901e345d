"""Keeps the newest checkpoint in the memory of the nodes, and finishes its save in the next attempt if all ranks die.

A save that goes to a slow storage takes long, and a death meanwhile would cost all steps since the checkpoint before.
So each node keeps the files of its own ranks and those of the node before it, as soon as they are written. Whatever one
node loses, another one has. The first thing that the next attempt does is to store them, if they are newer than the
newest checkpoint: it goes on from an ordinary checkpoint, which any script and any number of ranks can read.

A replica is used only if its files are, byte for byte, those that were written. One that is not is removed at once, and
so are all others at the end of the recovery: none is tried twice.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from core_sdk.core._checkpoint._replica_memory import Label, RankFiles, Replica, ReplicaMemory, total_bytes
from core_sdk.distributed import Channel, DistributedContext
from core_sdk.errors import ChannelError
from core_sdk.files import reading
from core_sdk.records import to_json
from core_sdk.storage import Shard

logger = logging.getLogger("core_sdk.checkpoint")

_CHUNK_BYTES = 16 << 20


class _File(NamedTuple):
    """The message that is sent before the content of a file."""

    rank: int
    name: str


class _End(NamedTuple):
    """The message that is sent after all files, or instead of the rest."""

    problem: str | None


class _Room(NamedTuple):
    """The message by which a local chief tells where its node keeps the next replica, or why it cannot."""

    node: int
    path: Path | None
    problem: str | None


@dataclass(frozen=True)
class Recovery:
    """A checkpoint whose save was not finished, and the files of it that this rank brings."""

    label: Label
    brought: Mapping[int, Replica]
    """The replicas from which this rank brings files, by the rank that has written the files."""

    def copy_to(self, directory: Path) -> None:
        for rank, replica in self.brought.items():
            replica.copy_to(directory, rank, self.label.ranks[rank])


class Replicas:
    """The replicas of one trial, as one rank sees them. The files are in the hands of each node's local chief."""

    def __init__(
        self,
        distributed: DistributedContext,
        *,
        home: str,
        trial_id: int,
        attempt: int,
        memory: ReplicaMemory | None = None,
    ) -> None:
        """`home` is the identity of the trial's home."""
        self._distributed = distributed
        self._home = home
        self._trial_id = trial_id
        self._attempt = attempt
        self._memory = memory or ReplicaMemory()
        self._nodes: list[int] = []
        """The node of each rank."""
        self._ring: tuple[Channel, Channel] | None = None
        self._new: Replica | None = None
        self._current: tuple[str, Replica] | None = None
        """The newest complete replica, and the storage id of its checkpoint."""
        self._stored_id: str | None = None
        self._last_problem: str | None = None

    def join(self) -> None:
        """Connects the nodes. Collective; does nothing the second time."""
        if not self._nodes:
            self._nodes = self._distributed.channel.allgather(self._distributed.cross_rank)
            self._ring = self._distributed.ring()
            if self._distributed.is_local_chief:
                self._memory.sweep()

    def keep(
        self, channel: Channel, storage_id: str, shards: Sequence[Shard], metadata: dict[str, Any], directory: Path
    ) -> None:
        """Keeps the files of all ranks; `directory` has this rank's. Collective.

        If that fails, a warning says why, and the replica before stays.
        """
        label = Label(
            home=self._home,
            trial_id=self._trial_id,
            attempt=self._attempt,
            storage_id=storage_id,
            steps_completed=metadata["steps_completed"],
            metadata=to_json(metadata, "metadata"),
            ranks=[RankFiles(shard.files, shard.directories) for shard in shards],
        )
        rooms = channel.allgather_outcome(lambda: self._make_room(label))
        problem = next((room.problem for room in rooms if room.problem is not None), None)
        path = next((room.path for room in rooms if room.path and room.node == self._distributed.cross_rank), None)
        if problem is None and path is not None:
            problem = _first(channel.allgather_outcome(lambda: self._copy_own(label, directory, path), is_patient=True))
        if problem is None:
            problem = _first(channel.allgather_outcome(lambda: self._exchange(label), is_patient=True))
        self._conclude(label, problem)

    def note_stored(self, storage_id: str) -> None:
        """Notes that the storage has this checkpoint, so that `close` may remove its replica."""
        self._stored_id = storage_id

    def close(self) -> None:
        """Removes the replica, unless its checkpoint has not been stored."""
        if self._current is not None and self._current[0] == self._stored_id:
            self._current[1].remove()
            self._current = None

    def recover(self, newer_than: int, first_attempt: Callable[[], int]) -> Recovery | None:
        """Returns the newest checkpoint with more steps that the nodes still have in memory. Collective.

        `first_attempt` is called on the chief. It returns the earliest attempt whose replicas count: after an earlier
        one the training has gone on from elsewhere. Call `remove_all` in the end.
        """
        channel = self._distributed.channel
        earliest = channel.broadcast_outcome(first_attempt)
        own = self._own() if self._distributed.is_local_chief else []
        labels = [label for found in channel.allgather([label for _, label in own]) for label in found]
        for label in newest_first(labels, newer_than, earliest):
            intact: dict[int, Replica] = {}

            def verify(label: Label = label, intact: dict[int, Replica] = intact) -> list[int]:
                intact.update(_verified(own, label))
                return list(intact)

            brought = share_out(label, channel.allgather_outcome(verify, is_patient=True))
            if isinstance(brought, str):
                self._log("the save of checkpoint %s at step %d stays lost: %s", label, brought)
                continue
            mine = {rank: intact[rank] for rank in brought[channel.rank] if rank in intact}
            reason = f"it is newer than the newest stored one, at step {newer_than}"
            self._log(
                "the save of checkpoint %s at step %d is finished from the memory of the nodes: %s", label, reason
            )
            return Recovery(label, mine)
        return None

    def remove_all(self) -> None:
        """Removes the replicas of all attempts of the trial on this node."""
        if self._distributed.is_local_chief:
            for replica, _ in self._own():
                replica.remove()

    def _own(self) -> list[tuple[Replica, Label]]:
        if not self._home:
            return []  # a damaged home does not know its identity
        found = ((replica, replica.label()) for replica in self._memory.found())
        return [
            (replica, label)
            for replica, label in found
            if label is not None and (label.home, label.trial_id) == (self._home, self._trial_id)
        ]

    def _log(self, message: str, label: Label, reason: str) -> None:
        if self._distributed.is_chief:
            logger.warning(message, label.storage_id, label.steps_completed, reason)

    def _make_room(self, label: Label) -> _Room:
        node = self._distributed.cross_rank
        if not self._distributed.is_local_chief:
            return _Room(node, None, None)
        try:
            self._new = self._memory.new(total_bytes(label.ranks[rank] for rank in self._ranks_of(node, node - 1)))
        except OSError as error:
            return _Room(node, None, f"node {node}: {error}")
        return _Room(node, self._new.path, None)

    def _copy_own(self, label: Label, directory: Path, path: Path) -> str | None:
        rank, replica = self._distributed.rank, Replica(path)
        try:
            for name in label.ranks[rank].files:
                with reading(directory / name) as source, replica.new_file(rank, name) as target:
                    shutil.copyfileobj(source, target, _CHUNK_BYTES)
        except OSError as error:
            return f"rank {rank}: {error}"
        return None

    def _exchange(self, label: Label) -> str | None:
        """Sends the files of this node to the next one, and receives those of the node before."""
        if self._ring is None or self._new is None:
            return None
        before, following = self._ring
        node, replica = self._distributed.cross_rank, self._new
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="core-sdk-replica") as thread:
                sending = thread.submit(_send, following, replica, label, self._ranks_of(node))
                problem = _receive(before, replica, label)
                sending.result()
            return problem
        except (OSError, ChannelError) as error:
            return f"node {node}: {error}"

    def _ranks_of(self, *nodes: int) -> list[int]:
        """Returns the ranks of these nodes, of which the one before the first is the last."""
        wanted = {node % self._distributed.cross_size for node in nodes}
        return [rank for rank, node in enumerate(self._nodes) if node in wanted]

    def _conclude(self, label: Label, problem: str | None) -> None:
        new, self._new = self._new, None
        if problem is not None:
            if new is not None:
                new.remove()
            if problem != self._last_problem and self._distributed.is_chief:
                logger.warning("there is no replica of checkpoint %s: %s", label.storage_id, problem)
        elif new is not None:
            # The replica before is removed once all nodes have received this one, and not earlier.
            new.complete(label)
            if self._current is not None:
                self._current[1].remove()
            self._current = label.storage_id, new
        self._last_problem = problem


def newest_first(labels: Sequence[Label], newer_than: int, first_attempt: int) -> list[Label]:
    """Returns the labels of checkpoints to recover, each once: those with more steps, of these attempts. Pure."""
    wanted = {
        label.storage_id: label
        for label in labels
        if label.steps_completed > newer_than and label.attempt >= first_attempt
    }
    return sorted(wanted.values(), key=lambda label: label.steps_completed, reverse=True)


def share_out(label: Label, intact: Sequence[Collection[int]]) -> list[list[int]] | str:
    """Returns, for each rank, the ranks of the checkpoint whose files it brings; or what is missing. Pure.

    `intact` has the ranks whose files each rank now has.
    """
    brought: list[list[int]] = [[] for _ in intact]
    for rank, files in enumerate(label.ranks):
        holder = next((number for number, ranks in enumerate(intact) if rank in ranks), None)
        if holder is not None:
            brought[holder].append(rank)
        elif files.files:
            return f"no node has the files of rank {rank} as they were written"
    return brought


def _first(problems: Sequence[str | None]) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _verified(own: Sequence[tuple[Replica, Label]], label: Label) -> dict[int, Replica]:
    """Returns the ranks whose files are intact, each with a replica that has them. Removes a replica that is not."""
    intact: dict[int, Replica] = {}
    for replica, its_label in own:
        if its_label.storage_id != label.storage_id:
            continue
        ranks = [rank for rank in range(len(label.ranks)) if replica.holds(rank)]
        try:
            for rank in ranks:
                replica.check(rank, label.ranks[rank])
        except OSError as error:
            logger.warning("a replica of checkpoint %s is removed: %s", label.storage_id, error)
            replica.remove()
        else:
            intact |= dict.fromkeys(ranks, replica)
    return intact


def _send(channel: Channel, replica: Replica, label: Label, ranks: Sequence[int]) -> None:
    problem = None
    try:
        for rank in ranks:
            for name in label.ranks[rank].files:
                channel.gather(_File(rank, name))
                with reading(replica.path_of(rank, name)) as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        channel.gather(chunk)
    except OSError as error:
        problem = str(error)
    channel.gather(_End(problem))


def _receive(channel: Channel, replica: Replica, label: Label) -> str | None:
    """Writes the files that come. Returns the problem of either side; all of it is received in any case."""
    problem = None
    with contextlib.ExitStack() as opened:
        target = None
        while not isinstance(message := _next(channel), _End):
            try:
                if isinstance(message, _File):
                    opened.close()
                    if message.name not in label.ranks[message.rank].files:
                        raise OSError(f"{message.name!r} is no file of rank {message.rank}")
                    target = opened.enter_context(replica.new_file(message.rank, message.name))
                elif target is not None and problem is None:
                    target.write(message)
            except OSError as error:
                problem, target = str(error), None
    return problem or message.problem


def _next(channel: Channel) -> _File | _End | bytes:
    messages: list[Any] | None = channel.gather(None)
    return _End("only the chief of a group receives") if messages is None else messages[1]
