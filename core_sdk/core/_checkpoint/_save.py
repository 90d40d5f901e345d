"""One checkpoint saved by one rank or by several: staged, agreed on, committed, recorded."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from core_sdk._distributed import DistributedContext, SoloChannel
from core_sdk._ground.signs import SignsOfLife
from core_sdk._home.journal import Journal
from core_sdk._home.storage import (
    Selector,
    Shard,
    ShardUnion,
    Staging,
    Storage,
    explained_by_disk,
    file_conflicts,
    unite,
)
from core_sdk.core._checkpoint._background_saves import Save, Saves
from core_sdk.core._checkpoint._metadata import checked_metadata, merge_metadata, plain_metadata
from core_sdk.core._checkpoint._recording import Holdup, Recorder
from core_sdk.core._checkpoint._together import differing, leave_together, step_together
from core_sdk.errors import CheckpointConflictError


class PathAndId(tuple[Path, str]):
    """The path and the storage id that a save gives its block.

    If a script uses it as a path, because it has forgotten the id, the error says what to write.
    """

    __slots__ = ()

    def __truediv__(self, _: object) -> NoReturn:
        self.__fspath__()

    def __fspath__(self) -> NoReturn:
        raise TypeError(
            "store_path() gives a path and a storage id: write `with ….store_path(…) as (path, storage_id)`"
        )


class _Offer(msgspec.Struct, frozen=True):
    """The message that each rank sends to the others before anything is written."""

    storage_id: str
    metadata: dict[str, Any] | None
    wait: bool
    has_pending: bool


class _SealedShard(msgspec.Struct, frozen=True):
    """The message that each rank sends to the others once its files are sealed."""

    shard: Shard
    metadata: dict[str, Any] | None
    address: str


@dataclass
class CheckpointSave:
    """The saving of one checkpoint.

    With `shard` all ranks enter and leave the block, each with a directory of its own, and the checkpoint is the union
    of their files. A failure on one rank, also in its block, fails the save on all, and nothing is stored. If a rank
    dies after all have contributed their files, the others raise an error, but the checkpoint, which is complete, may
    stay. Without `shard` only this rank takes part, and the steps are the same.

    Without `wait` a thread takes the steps after the block, the first of which is `write_later`. On several ranks it
    needs a channel of its own, since the script goes on making calls on the usual one.
    """

    storage: Storage
    storage_name: str
    distributed: DistributedContext
    journal: Journal
    saves: Saves
    metadata: Mapping[str, Any] | None
    shard: bool
    wait: bool
    write_later: Callable[[Path], object] | None = None

    def __post_init__(self) -> None:
        self._channel = self.distributed.channel if self.shard else SoloChannel()
        self._holdup = Holdup()
        self._final_metadata: dict[str, Any] | None = None
        self._staging: Staging
        self._storage_id: str

    @contextlib.contextmanager
    def open(self) -> Iterator[tuple[Path, str]]:
        """Gives `(path, storage_id)`, and stores the files in the directory `path` at the end of the block."""
        try:
            with SignsOfLife.busy(), self._opened() as path_and_id:
                yield path_and_id
        except BaseException as error:
            self.saves.failure = error
            raise

    def fill(self, source: Path, selector: Selector | None) -> None:
        """Adds the files of the directory `source` to this rank's. Called within the block; not collective."""
        self._staging.fill(source, selector, copy=not self.wait)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[Path, str]]:
        self.journal.check_open()
        self._holdup.begin()
        self._storage_id = self._agree()
        needs_channel = self.shard and not self.wait
        finishing_channel = self.distributed.background_channel() if needs_channel else self._channel
        begun_at = time.monotonic()
        with contextlib.ExitStack() as undo:
            addresses = self._channel.allgather_outcome(lambda: self._stage(undo))
            # Before the block, which may take long.
            step_together(self._channel, lambda: self._staging.check_reachable(addresses[0]))
            self._channel = finishing_channel
            try:
                with self._disk_named(), directory_named("store_path()", "torch.save(…, path / 'model.pt')"):
                    yield PathAndId((self._staging.path, self._storage_id))
            except BaseException as error:
                leave_together(self._channel, error)
                raise
            # Not in a child that was forked in the block: what the parent is still writing would be stored.
            self.journal.check_open()
            self._freeze_metadata()
            undo.pop_all()
        save = Save(self._storage_id, begun_at, self._finish, self._staging.cancel, self._staging.path)
        if not self.wait:
            self._holdup.end()
        self.saves.take(save, wait=self.wait)

    def _agree(self) -> str:
        """Checks the metadata, as far as it is known now, and returns the id that the chief has drawn. Collective."""
        offers = self._channel.allgather_outcome(self._offer)
        if any(offer.has_pending for offer in offers):
            self._channel.allgather_outcome(self.saves.wait, is_patient=True)
        if len(set(waits := [offer.wait for offer in offers])) > 1:
            raise differing("store_path() or upload()", "wait", waits)
        agreed_metadata([offer.metadata for offer in offers], {})
        return offers[0].storage_id

    def _offer(self) -> _Offer:
        return _Offer(str(uuid.uuid4()), plain_metadata(self.metadata), self.wait, self.saves.is_pending())

    def _stage(self, undo: contextlib.ExitStack) -> str:
        self._staging = undo.enter_context(self.storage.stage(self._storage_id, is_shared=self._channel.size > 1))
        return self._staging.address

    def _freeze_metadata(self) -> None:
        """Keeps the metadata as it is at the end of the block: the script may go on changing it."""
        try:
            self._final_metadata = plain_metadata(self.metadata)
        except BaseException as error:
            leave_together(self._channel, error)
            raise

    def _finish(self) -> None:
        with self._staging:
            leave_together(self._channel, None)
            # From here on all ranks are at work, which may take longer than they would wait for one that is absent.
            parts = self._channel.allgather_outcome(self._seal, is_patient=True)
            self._store(parts)

    def _seal(self) -> _SealedShard:
        if self.write_later is not None:
            with self._disk_named():
                self.write_later(self._staging.path)
        return _SealedShard(self._staging.seal(), self._final_metadata, self._staging.address)

    def _disk_named(self) -> AbstractContextManager[None]:
        return disk_named(self._staging, self._storage_id, self.saves.last_size_bytes)

    def _store(self, parts: Sequence[_SealedShard]) -> None:
        # Every rank comes to the same result, or to the same error.
        shards = [part.shard for part in parts]
        metadata = agreed_metadata([part.metadata for part in parts], file_conflicts(shards))
        union = unite(shards)
        if self.shard and not union.files:
            raise ValueError(
                f"checkpoint {self._storage_id} was not stored: no rank has put a file into it. Writing must end "
                "before the block does: call result() on what dcp.async_save() returns. To store only metadata, call "
                "store_path() on rank 0 without shard=True."
            )
        names = union.names_of(self._channel.rank)
        step_together(self._channel, lambda: self._staging.contribute(names, parts[0].address), is_patient=True)
        self._channel.broadcast_outcome(lambda: self._commit(union, metadata), is_patient=True)

    def _commit(self, union: ShardUnion, metadata: dict[str, Any]) -> None:
        recorder = Recorder(self.storage, self.journal, self.storage_name, self._holdup)
        recorder.store(self._storage_id, lambda: self._staging.commit(union, metadata))
        self.saves.last_size_bytes = sum(entry.size_bytes for entry in union.files.values())


@contextlib.contextmanager
def disk_named(staging: Staging, storage_id: str, last_size_bytes: int) -> Iterator[None]:
    """Says in our words that the disk has failed the script, whatever the library that wrote has made of it."""
    try:
        yield
    except Exception as error:
        told = explained_by_disk(error, staging, storage_id, last_size_bytes)
        if told is None:
            raise
        # What has failed may hold the file open, whose space is free only when it is closed.
        cause: BaseException | None = error
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__context__
        raise told from error


def agreed_metadata(
    parts: Sequence[dict[str, Any] | None], conflicting_files: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Returns the merged metadata of all ranks; raises `CheckpointConflictError` if metadata or files conflict."""
    metadata, conflicts = merge_metadata(parts)
    if conflicting_files or conflicts:
        raise CheckpointConflictError(conflicting_files, conflicts)
    return checked_metadata(metadata)


@contextlib.contextmanager
def directory_named(call: str, example: str) -> Iterator[None]:
    """Notes in an error what `call` gives, where a script has taken the directory for a file."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if os.strerror(errno.EISDIR) in str(error):
            error.add_note(f"{call} gives a directory: name a file in it, as in {example}")
        raise
