"""Storage for `torch.distributed.checkpoint`: a checkpoint is whole or does not exist. Imports torch.

The ranks take the steps of a save by the collectives that `torch.distributed.checkpoint` makes anyway, in its process
group and its thread. So `async_save()` is a save like any other, and the script's own channel is not used. The
coordinator draws the id and stages an empty checkpoint, to which each rank contributes its files in `write_data`.
`finish`, which is called on the coordinator once all ranks have done so, adds the index of the tensors and commits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from core_sdk._ground.pickling import OfOneProcess
from core_sdk._home.journal import Journal
from core_sdk._home.storage import Shard, Staging, Storage, unite
from core_sdk.core._checkpoint._background_saves import Save, Saves
from core_sdk.core._checkpoint._grace import Grace
from core_sdk.core._checkpoint._metadata import plain_metadata
from core_sdk.core._checkpoint._recording import Recorder
from core_sdk.core._checkpoint._save import agreed_metadata, disk_named
from core_sdk.errors import GraceExceededError

T = TypeVar("T")

logger = logging.getLogger("core_sdk.checkpoint")

_INDEX_SUFFIX = ".metadata"
_LOOK_INTERVAL_S = 0.1
# The thread of `dcp.async_save()` begins at once, or never.
_BEGINNING_S = 60.0


@dataclasses.dataclass(frozen=True)
class _Proposal:
    """The part of a rank's plan for our side of the save, which the coordinator gets."""

    metadata: dict[str, Any] | None


@dataclasses.dataclass(frozen=True)
class _Begun:
    """The part of the coordinator's plan for our side of the save, which each rank gets."""

    storage_id: str
    address: str
    file_data: Any
    """The part that `FileSystemWriter` has sent."""


class CheckpointWriter(OfOneProcess, FileSystemWriter):
    """The `storage_writer` of one `dcp.save()` or `dcp.async_save()`, which all ranks of its process group call.

    If one rank fails, `dcp.save()` raises `CheckpointException` on all ranks, and nothing is stored.
    """

    def __init__(
        self,
        storage: Storage,
        recorder: Recorder,
        journal: Journal,
        saves: Saves,
        metadata: dict[str, Any] | None,
        *,
        is_chief: bool,
        **options: Any,
    ) -> None:
        super().__init__("", sync_files=False, overwrite=False, **options)  # sealing syncs the files
        self._storage = storage
        self._recorder = recorder
        self._journal = journal
        self._saves = saves
        self._script_metadata = plain_metadata(metadata)
        self._agreed_metadata: dict[str, Any] = {}
        self._is_chief = is_chief
        self._is_coordinator = False
        self._storage_id = ""
        self._union: Staging
        self._cancel: Callable[[], object] = lambda: None
        self._discard: Callable[[], object] = lambda: None
        self._is_stored = False
        self._is_awaited = False
        self._thread: threading.Thread | None = None
        self._begun_at = 0.0

    @property
    def storage_id(self) -> str | None:
        """The id of the checkpoint; None before this rank writes its files."""
        return self._storage_id or None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            self._is_awaited = False
            raise ValueError(
                f"dcp_writer() draws the id of its checkpoint itself, and cannot store it as {checkpoint_id}: pass no "
                "checkpoint_id, and read storage_id of the writer afterwards"
            )
        super().reset()

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copies the state for `dcp.async_save()`, which then starts the thread that saves it."""
        self._recorder.holdup.begin()
        staged: dict[str, Any] = super().stage(state_dict)
        self._recorder.holdup.end()
        self._begun_at, self._is_awaited = time.monotonic(), True
        return staged

    def storage_meta(self) -> StorageMeta | None:
        """Notes the thread that saves: torch asks for this first, before anything of the save can fail."""
        if not self._is_awaited:
            self._recorder.holdup.begin()
        self._thread, self._is_awaited = threading.current_thread(), False
        self._begun_at = time.monotonic()
        return super().storage_meta()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._is_coordinator = is_coordinator
        with self._failure_noted():
            self._journal.check_open()
            if self._is_stored:
                raise RuntimeError(
                    f"this writer has stored checkpoint {self.storage_id}: call dcp_writer() for each save"
                )
            self._discard()  # what an earlier save, which failed on another rank, has left
            if is_coordinator and not self._is_chief:
                raise RuntimeError(
                    "only the chief can record a checkpoint, and another rank coordinates this save: the chief must be "
                    "the first rank of process_group, and without a process group only the chief saves"
                )
            if not kwargs.get("use_collectives", True):
                raise ValueError(
                    "dcp_writer() stores one checkpoint for all ranks, which use_collectives=False forbids"
                )
            super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return dataclasses.replace(plan, storage_data=_Proposal(self._script_metadata))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        with self._failure_noted():
            proposals = [plan.storage_data for plan in plans if isinstance(plan.storage_data, _Proposal)]
            if len(proposals) < len(plans):
                raise _of_an_earlier_save()
            self._agreed_metadata = agreed_metadata([each.metadata for each in proposals], {})
            plans = super().prepare_global_plan([dataclasses.replace(plan, storage_data=None) for plan in plans])
            storage_id = str(uuid.uuid4())
            self._union = union = self._storage.stage(storage_id, is_shared=True)
            # If another rank fails, nobody says so to this writer: then its end discards the files.
            self._cancel, self._discard = union.cancel, weakref.finalize(self, union.discard)
            # In a bucket this takes the lease, which must outlast the other ranks' leases.
            union.contribute((), union.address)
        return [
            dataclasses.replace(plan, storage_data=_Begun(storage_id, union.address, plan.storage_data))
            for plan in plans
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        begun: _Begun = plan.storage_data
        self._storage_id = begun.storage_id
        own_plan = dataclasses.replace(plan, storage_data=begun.file_data)
        write = super().write_data
        with self._failure_noted():
            if self._is_coordinator and begun.address != self._union.address:
                raise _of_an_earlier_save()
            results, shard = self._contribute(lambda: write(own_plan, planner).wait(), begun.address)
        if not self._is_coordinator:
            self._thread = None
        future: Future[list[WriteResult]] = Future()
        future.set_result([*results, WriteResult(MetadataIndex(""), 0, shard)])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        union, storage_id = self._union, self._storage_id
        shards: list[Shard] = [written.pop().storage_data for written in results]
        write_index = super().finish
        with self._failure_noted():
            _, index = self._contribute(lambda: write_index(metadata, results), union.address)
            shards[0] = msgspec.structs.replace(shards[0], files=shards[0].files | index.files)
            whole = unite(shards)

            def commit() -> None:
                self._recorder.store(storage_id, lambda: union.commit(whole, self._agreed_metadata))

            self._saves.take(Save(storage_id, self._begun_at, commit, union.cancel), wait=True)
            self._saves.last_size_bytes = sum(entry.size_bytes for entry in whole.files.values())
            self._is_stored = True
            self._discard()
        self._thread = None

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self._storage_id

    def await_end(self, grace: Grace) -> None:
        """Blocks until the thread of `dcp.async_save()` has stored the checkpoint, or has failed, which it says.

        After a stop it waits only until the grace is over, and then raises `GraceExceededError`.
        """
        while self._is_in_flight():
            if grace.is_over():
                self._cancel()
                taken_s = time.monotonic() - self._begun_at
                raise GraceExceededError(self._storage_id or "of dcp_writer()", taken_s, grace.total_s or 0.0)
            time.sleep(_LOOK_INTERVAL_S)
        if not self._is_stored:
            self._discard()
        if self._is_awaited or self._thread_beside() is not None:
            logger.error(
                "a thread that was to save by dcp_writer() has failed, and nothing of its checkpoint is visible: what "
                "dcp.async_save() has returned, or the thread that has called dcp.save(), has the error"
            )

    def _is_in_flight(self) -> bool:
        if self._is_awaited:
            return time.monotonic() < self._begun_at + _BEGINNING_S
        thread = self._thread_beside()
        return thread is not None and _is_saving(thread)

    def _thread_beside(self) -> threading.Thread | None:
        """Returns the thread whose save has neither ended nor failed on this rank, unless it is the present one."""
        return None if self._thread is threading.current_thread() else self._thread

    def _contribute(self, write: Callable[[], T], address: str) -> tuple[T, Shard]:
        """Writes files, and brings them to the coordinator; returns what `write` has returned, and their checksums."""
        with self._storage.stage(self._storage_id, is_shared=True) as own:
            own.check_reachable(address)
            self.path = own.path
            with disk_named(own, self._storage_id, self._saves.last_size_bytes):
                written = write()
            shard = own.seal()
            own.contribute(list(shard.files), address)
        return written, shard

    @contextlib.contextmanager
    def _failure_noted(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._saves.failure, self._thread = error, None
            self._discard()
            raise

    def __getstate__(self) -> NoReturn:
        self._is_awaited = False
        raise TypeError(
            "dcp_writer() stores in the process of its Context, which alone records checkpoints: call dcp.async_save() "
            "with AsyncCheckpointerType.THREAD, or save to the directory of store_path() by checkpoint_id"
        )


def _is_saving(thread: threading.Thread) -> bool:
    """Returns whether the thread is in a call of `torch.distributed.checkpoint`.

    A failure on another rank ends the call, and may leave the thread: a pool keeps its threads.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and not str(frame.f_globals.get("__name__")).startswith("torch.distributed.checkpoint"):
        frame = frame.f_back
    return frame is not None


def _of_an_earlier_save() -> ValueError:
    return ValueError(
        "the planner has brought the plan of an earlier save, which would be stored under its id: leave out "
        "DefaultSavePlanner(enable_plan_caching=True), or save to the directory of store_path() by checkpoint_id"
    )


class CheckpointReader(OfOneProcess, FileSystemReader):
    """The `storage_reader` of `dcp.load()`. Each rank fetches and verifies the files from which it reads."""

    def __init__(self, storage: Storage, storage_id: str) -> None:
        super().__init__("")
        self._storage = storage
        self.storage_id = storage_id
        self._failure: Exception | None = None

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id:
            raise ValueError(f"dcp_reader() reads checkpoint {self.storage_id}: pass no checkpoint_id with it")
        super().reset()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self._failure is not None and "rank" in kwargs:
            # Torch 2.11 has forgotten it by now, and would only say "metadata is None". The next step raises it.
            return Metadata({})
        self._failure = None
        try:
            return self._read_index(super().read_metadata, *args, **kwargs)
        except Exception as error:  # whatever it is, it is raised, and torch may swallow it
            self._failure = error
            raise

    def set_up_storage_reader(self, *args: Any, **kwargs: Any) -> None:
        if self._failure is not None:
            raise self._failure
        super().set_up_storage_reader(*args, **kwargs)

    def _read_index(self, read: Callable[..., Metadata], *args: Any, **kwargs: Any) -> Metadata:
        names = [name for name in self._storage.manifest(self.storage_id).files if name.endswith(_INDEX_SUFFIX)]
        if not names:
            raise ValueError(
                f"checkpoint {self.storage_id} has no file .metadata, so torch.distributed.checkpoint has not written "
                "it: read it by restore_path()"
            )
        with self._opened(names):
            return read(*args, **kwargs)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        names = {self.storage_data[item.storage_index].relative_path for item in plan.items}
        with self._opened(names):
            return super().read_data(plan, planner)

    @property
    def checkpoint_id(self) -> str | os.PathLike[str]:
        return self.storage_id

    @contextlib.contextmanager
    def _opened(self, names: Collection[str]) -> Iterator[None]:
        with self._storage.open(self.storage_id, names.__contains__) as self.path:
            yield
