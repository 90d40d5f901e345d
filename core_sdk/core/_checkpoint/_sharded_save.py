"""One checkpoint of several ranks."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from core_sdk.core._checkpoint._metadata import checked_metadata, merge_metadata, plain_metadata
from core_sdk.core._checkpoint._together import leave_together, step_together
from core_sdk.distributed import Channel
from core_sdk.errors import CheckpointConflictError
from core_sdk.journal import Journal
from core_sdk.records import Manifest
from core_sdk.storage import Selector, Shard, ShardStaging, ShardUnion, Storage, file_conflicts, unite


@dataclass(frozen=True)
class _Part:
    """What one rank tells the others once its shard is sealed."""

    shard: Shard
    metadata: dict[str, Any] | None
    address: str


class ShardedSave:
    """Entered and left by all ranks, each with a directory of its own; stores the union of what they hold at the end.

    Gives `(path, storage_id)`. Whatever fails on one rank, its block included, fails on all, and nothing is stored. A
    rank that dies once all have brought their files comes too late for that: the others are told, and the checkpoint,
    which is whole, may stay.
    """

    def __init__(
        self,
        storage: Storage,
        channel: Channel,
        journal: Journal,
        metadata: Mapping[str, Any] | None,
        record: Callable[[Manifest], None],
    ) -> None:
        self._storage = storage
        self._channel = channel
        self._journal = journal
        self._metadata = metadata
        self._record = record
        self._staging: ShardStaging

    def __enter__(self) -> tuple[Path, str]:
        self._journal.check_open()
        storage_id = self._agree()
        with contextlib.ExitStack() as undo:
            addresses = self._channel.allgather_outcome(lambda: self._stage(storage_id, undo))
            # Before the block, which may take long.
            step_together(self._channel, lambda: self._staging.check_reachable(addresses[0]))
            undo.pop_all()
        return self._staging.path, storage_id

    def fill(self, source: Path, selector: Selector | None) -> None:
        """Takes the files of the directory `source`; not collective."""
        self._staging.fill(source, selector)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        with self._staging:
            if exc_val is None:
                # Not in a child that was forked in the block: what the parent is still writing would be stored.
                self._journal.check_open()
            parts = leave_together(self._channel, exc_val, self._seal)
            if parts is not None:
                self._store(parts)

    def _agree(self) -> str:
        """Checks the metadata, as far as it is known now, and gives the id that the chief has drawn."""
        offers = self._channel.allgather_outcome(lambda: (str(uuid.uuid4()), plain_metadata(self._metadata)))
        _agreed_metadata([metadata for _, metadata in offers], {})
        return offers[0][0]

    def _stage(self, storage_id: str, undo: contextlib.ExitStack) -> str:
        self._staging = undo.enter_context(self._storage.stage_shard(storage_id))
        return self._staging.address

    def _seal(self) -> _Part:
        return _Part(self._staging.seal(), plain_metadata(self._metadata), self._staging.address)

    def _store(self, parts: Sequence[_Part]) -> None:
        # Every rank comes to the same result, or to the same error.
        shards = [part.shard for part in parts]
        metadata = _agreed_metadata([part.metadata for part in parts], file_conflicts(shards))
        union = unite(shards)
        names = union.names_of(self._channel.rank)
        step_together(self._channel, lambda: self._staging.contribute(names, parts[0].address))
        self._channel.broadcast_outcome(lambda: self._commit(union, metadata))

    def _commit(self, union: ShardUnion, metadata: dict[str, Any]) -> None:
        self._record(self._staging.commit(union, metadata))


def _agreed_metadata(
    parts: Sequence[dict[str, Any] | None], conflicting_files: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    metadata, conflicts = merge_metadata(parts)
    if conflicting_files or conflicts:
        raise CheckpointConflictError(conflicting_files, conflicts)
    return checked_metadata(metadata)
