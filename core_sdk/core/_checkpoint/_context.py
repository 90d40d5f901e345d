"""The checkpoint part of the Context."""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk._distributed import DistributedContext, SoloChannel
from core_sdk._ground.environment import is_home_spooled
from core_sdk._ground.importing import needing_torch
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import ClusterInfo, Keep, from_json
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.continuation import find_recorded
from core_sdk._home.checkpoints import RecordedCheckpoint
from core_sdk._home.folders import with_reserve
from core_sdk._home.history import read_history
from core_sdk._home.journal import Journal
from core_sdk._home.storage import Selector, Storage, check_storage_id, storage_from_url
from core_sdk._home.storages import storage_name
from core_sdk.core._checkpoint._background_saves import Saves
from core_sdk.core._checkpoint._grace import Grace
from core_sdk.core._checkpoint._metadata import checked_metadata
from core_sdk.core._checkpoint._recording import Holdup, Recorder
from core_sdk.core._checkpoint._shared_reading import shared_download, shared_restore
from core_sdk.core._checkpoint._sources import contributors, describe_source
from core_sdk.core._checkpoint._with_block import WithBlock
from core_sdk.core._resumption import Resumption
from core_sdk.errors import (
    CheckpointDamagedError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointProtectedError,
    CheckpointTooNewError,
)

if TYPE_CHECKING:
    from core_sdk._home.deletion import OtherTrials
    from core_sdk.core._checkpoint._dcp import CheckpointReader, CheckpointWriter
    from core_sdk.core._checkpoint._save import CheckpointSave

logger = logging.getLogger("core_sdk.core")


class DownloadMode(enum.Enum):
    """The way in which the ranks of a node read a checkpoint. With one rank both modes do the same."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    """All ranks of the node call in step, for the same checkpoint. An error on one of them is an error on all."""
    NoSharedDownload = "NO_SHARED_DOWNLOAD"
    """Each rank reads for itself, at any time."""


class CheckpointContext(OfOneProcess):
    """Stores and reads checkpoints.

    A checkpoint is a directory of files under a storage id, with metadata. `metadata` must hold an int
    `steps_completed`, at least 0; its values may be anything that JSON can keep, and also NaN and infinities. It is
    checked before anything is written: a missing `steps_completed` raises `ValueError`, a value that JSON cannot keep
    raises `TypeError`.

    Calls that store raise `ValueError` for a file named metadata.json or .manifest.json, `UnsafePathError` for a
    link that leads outside and for devices and pipes, `NotEnoughSpaceError` or `CheckpointNotStoredError`; the
    checkpoint then does not exist. Calls that read raise `CheckpointNotFoundError`, or `CheckpointDamagedError`, which
    names the file. Every call may raise a `StorageError`: the bucket cannot be reached or refuses the request, which
    says nothing about the checkpoint.

    With `shard=True` all ranks call in step, and get the same storage id. The checkpoint is the union of the ranks'
    files: each rank writes into a directory that no other rank sees, and equal files of one name are stored once.
    Metadata is merged key by key, and one rank's `steps_completed` is enough. If files or metadata differ, every rank
    raises `CheckpointConflictError`, which names them. Any other failure on one rank raises its own error there, and
    `RankFailedError` or `RankDiedError` on the others; nothing is stored. Unless `wait=False`, no rank returns before
    the checkpoint is stored and recorded.

    A selector is called with names relative to the checkpoint, a directory's ending with "/", and accepts or rejects
    each; metadata.json is always included. All calls block until the files are safe, on disk or in the bucket, or read.

    With `wait=False` a save returns once its block has ended, and a thread does the rest. `wait()`, the next save,
    any other call for the same checkpoint, and leaving the Context block until it is stored; the first of them raises
    its failure.
    """

    def __init__(
        self,
        storage: Storage,
        distributed: DistributedContext,
        journal: Journal,
        grace: Grace | None = None,
        folder: TrialFolder | None = None,
        info: ClusterInfo | None = None,
        earlier: Mapping[str, str] = {},
        resumption: Resumption | None = None,
        *,
        is_read_only: bool = False,
    ) -> None:
        """`folder` is the trial's folder; without it, no call looks up records in the home. `info` is the run info.

        `earlier` has the trial's checkpoints, each with the URL of its storage; empty for those in `storage`.
        `resumption` is told when a checkpoint is read. With `is_read_only`, as for a writer, calls that store or delete
        raise `RuntimeError`.
        """
        self._storage = storage
        self._folder = folder
        self._storage_name = storage.url if folder is None else storage_name(Home(folder.home_root), storage.url)
        self._distributed = distributed
        self._journal = journal
        self._others: OtherTrials | None = None
        self._grace = grace or Grace.endless()
        self._saves = Saves(self._grace, is_chief=distributed.is_chief)
        self._writers: weakref.WeakSet[CheckpointWriter] = weakref.WeakSet()
        self._info = info
        self._resumption = resumption
        self._is_read_only = is_read_only
        self._obeys_keep = False
        self._earlier = earlier
        self._other_storages: dict[str, Storage] = {}

    @property
    def storage_url(self) -> str:
        """The URL of the storage, such as `file:///data/checkpoints` or `s3://bucket/prefix`."""
        return self._storage.url

    @property
    def first_save_duration_s(self) -> float | None:
        """The duration of the first save, from its first file to the commit; None until a checkpoint is stored."""
        return self._saves.first_duration_s

    @property
    def failed_save(self) -> BaseException | None:
        """The error of the last save that has failed; None if none has."""
        return self._saves.failure

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
        wait: bool = True,
    ) -> str:
        """Stores a copy of the directory `ckpt_dir`, and returns the storage id; the directory is left as it is.

        With `wait=False` it returns once the copy is made, and the rest is done in the background.

        With `shard=True` every rank calls; a rank without files passes None for `ckpt_dir`, and a directory that
        several ranks of a host pass is stored once. Without it, only the chief calls; other ranks raise `RuntimeError`.
        """
        self._check_may_store("upload", shard)
        channel = self._distributed.channel if shard else SoloChannel()
        host = self._distributed.hosts[self._distributed.rank]
        # Also waits until every rank has written its files.
        sources = channel.allgather_outcome(lambda: describe_source(ckpt_dir, selector, host))
        if not any(sources):
            raise RuntimeError("upload() got no directory from any rank that called it: pass ckpt_dir")
        save = self._save(metadata, shard=shard, wait=wait)
        with save.open() as (_, storage_id):
            if ckpt_dir is not None and channel.rank in contributors(sources):
                save.fill(Path(ckpt_dir), selector)
        return storage_id

    def store_path(
        self,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        wait: bool = True,
        write_later: Callable[[Path], object] | None = None,
    ) -> AbstractContextManager[tuple[Path, str]]:
        """Returns a context manager that gives `(path, storage_id)`, and at its end stores the files in `path`.

        If the block raises, nothing is stored. The block may add to `metadata`. With `wait=False` the end of the block
        does not wait until the files are stored. With `shard=True` every rank enters and leaves the block, and
        `ValueError` is raised if none writes a file. Without it, only the chief calls; other ranks raise
        `RuntimeError`.

        All writing to `path` must have ended when the block ends: call `result()` of what `dcp.async_save()` returns.
        Only `write_later(path)` writes after the block, with `wait=False` in the background. It must write what the
        block has copied, since the script goes on meanwhile.
        """
        self._check_may_store("store_path", shard)
        save = self._save(metadata, shard=shard, wait=wait, write_later=write_later)
        return WithBlock(save.open(), "with ….store_path(…) as (path, storage_id):")

    def dcp_writer(self, metadata: dict[str, Any] | None = None, **options: Any) -> CheckpointWriter:
        """Returns the `storage_writer` for one call of `dcp.save()` or `dcp.async_save()`.

        The checkpoint is stored, and recorded, when `dcp.save()` returns or the future of `dcp.async_save()` is done;
        then `storage_id` of the writer is its id. Every rank that saves makes a writer, not collectively. Metadata is
        merged as with `shard=True`, and copied at this call. `options` go to `FileSystemWriter`, such as
        `thread_count`.

        A failure on one rank fails the save on every rank with torch's `CheckpointException`, whose `failures` has
        the errors by rank; nothing is stored. The chief must be the first rank of the process group. Leaving the
        Context blocks until a `dcp.async_save()` in a thread is stored; its checkpointer in a process is refused.
        """
        with needing_torch("checkpoint.dcp_writer()"):
            from core_sdk.core._checkpoint._dcp import CheckpointWriter

        self._check_may_change("dcp_writer")
        writer = CheckpointWriter(
            self._storage,
            Recorder(self._storage, self._journal, self._storage_name, Holdup()),
            self._journal,
            self._saves,
            metadata,
            is_chief=self._distributed.is_chief,
            **options,
        )
        self._writers.add(writer)
        return writer

    def dcp_reader(self, storage_id: str) -> CheckpointReader:
        """Returns the `storage_reader` with which `dcp.load()` reads what `dcp.save()` has stored.

        Any number of ranks may load it, whatever number has saved it. Each rank verifies the files from which it reads,
        and fetches only those from a bucket, into a temporary directory. Its errors are in `failures` of torch's
        `CheckpointException`. Not collective; `dcp.load()` is. Loading runs code that a checkpoint's writer has put
        into its pickles: load only what you trust.
        """
        with needing_torch("checkpoint.dcp_reader()"):
            from core_sdk.core._checkpoint._dcp import CheckpointReader

        self.check_whole(storage_id)
        self._saves.wait_for(check_storage_id(storage_id))
        return CheckpointReader(self._storage_of(storage_id), storage_id)

    def _save(
        self,
        metadata: dict[str, Any] | None,
        *,
        shard: bool,
        wait: bool,
        write_later: Callable[[Path], object] | None = None,
    ) -> CheckpointSave:
        if not shard:
            checked_metadata(metadata)  # at the call, rather than when the block is entered
        from core_sdk.core._checkpoint._save import CheckpointSave  # many trainings store nothing

        return CheckpointSave(
            self._storage,
            self._storage_name,
            self._distributed,
            self._journal,
            self._saves,
            metadata,
            shard,
            wait,
            write_later,
        )

    def wait(self) -> None:
        """Blocks until the save in the background is stored and recorded, and raises its failure, once.

        Does nothing if there is none. It may be interrupted, and called again. Not collective.
        """
        self._saves.wait()

    def close(self) -> None:
        """Blocks until the save in the background is stored, as `wait()` does.

        After a stop it waits only until the grace is over, and then raises `GraceExceededError`.
        """
        with contextlib.ExitStack() as others:
            for storage in self._other_storages.values():
                others.callback(storage.close)
            others.callback(self._saves.close)
            for writer in list(self._writers):
                writer.await_end(self._grace)

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copies the checkpoint's files into `ckpt_dir`, each verified before it gets its name.

        Files that are already there and intact are not copied again. Raises `NotEnoughSpaceError` before anything is
        copied.

        Where the ranks of a node share the download, each directory that one of them names gets the files that any of
        them accepts; a rank without a selector accepts all.
        """
        self.check_whole(storage_id)
        if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
            self._saves.wait_for(storage_id)
            self._storage_of(storage_id).download(storage_id, Path(ckpt_dir), selector)
        else:
            host = self._distributed.hosts[self._distributed.rank]
            channel = self._distributed.node_channel
            shared_download(self._storage_of, channel, self._saves, host, storage_id, ckpt_dir, selector)

    def what_to_keep(self, own: Keep | None = None) -> Keep | None:
        """Returns what to keep of the checkpoint from which this attempt goes on.

        That is what `core-sdk trial continue --keep` says, or else `own`, what the script says: "all", "model" for the
        weights alone, or names of parts; None if neither says anything. A script that restores its checkpoint itself
        calls it before, and loads only that: if the command line says anything but "all", and nobody has called it,
        `restore_path()` and `download()` of that checkpoint raise `CheckpointError`.
        """
        self._obeys_keep = True
        told = None if self._info is None else self._info.trial.keep
        if told is None:
            return own
        if own is not None and _comparable(own) != _comparable(told) and self._distributed.is_chief:
            logger.warning(
                "`trial continue --keep` says what to keep (%s): the script's keep=%r is not used", told, own
            )
        return told

    def check_whole(self, storage_id: str) -> None:
        """Raises `CheckpointError` if only parts of this checkpoint are wanted, and `what_to_keep()` was not called.

        Call it before a restore of all of it by other means than `restore_path()`.
        """
        if self._resumption is not None:
            self._resumption.note_read()
        info = self._info
        if info is None or self._obeys_keep or storage_id != info.latest_checkpoint:
            return
        if info.trial.keep is not None and info.trial.keep != "all":
            keep = info.trial.keep if isinstance(info.trial.keep, str) else ",".join(info.trial.keep)
            raise CheckpointError(
                f"trial {info.trial.trial_id} was continued with --keep {keep}, and its script restores all of "
                f"checkpoint {storage_id}. Use State.restore() or a Trainer, which obey, or ask "
                "`core_context.checkpoint.what_to_keep()` and load only that. Or continue the trial without --keep."
            )

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """Returns the `metadata` with which the checkpoint was stored. Not collective: any rank may call."""
        self._saves.wait_for(storage_id)
        return dict(from_json(self._storage_of(storage_id).manifest(storage_id).metadata))

    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> AbstractContextManager[Path]:
        """Returns a context manager that verifies the checkpoint's files and gives their directory; only read there.

        A checkpoint that was stored elsewhere, before `checkpoint_storage` was changed, is read from there.

        On a file system it is the checkpoint itself: a selector says which files to verify, and all are there. From a
        bucket it is a temporary copy of the selected files, which is removed at the end; `NotEnoughSpaceError` is
        raised if it does not fit. Where the ranks of a node share it, one rank fetches and verifies for all; they enter
        and leave the block in step.
        """
        self.check_whole(storage_id)
        if DownloadMode(download_mode) is DownloadMode.NoSharedDownload:
            self._saves.wait_for(storage_id)
            opened = self._storage_of(check_storage_id(storage_id)).open(storage_id, selector)
        else:
            ranks = self._distributed.node_channel
            opened = shared_restore(self._storage_of, ranks, self._saves, storage_id, selector)
        return WithBlock(_read(opened), "with ….restore_path(…) as path:")

    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> None:
        """Deletes the checkpoint from the storage, pinned or not. It vanishes at once; then its space is freed.

        With `globs` ("optimizer", "*.pt", "**/*.tmp") only the files and directories that match are deleted. The rest
        is as intact as before, but no trial resumes from it. If nothing remains, the checkpoint is deleted.

        One rank calls, preferably the chief, since only the chief can record it: a checkpoint that another rank deletes
        stays in lists, and a resume skips it. Raises `OSError` if the deletion cannot be recorded: then call again.

        In a home that is a copy, checkpoints outside the home that were stored before it was copied belong to the
        original: they are removed from this home's lists, and their files stay.
        """
        from core_sdk._home.deletion import remove_checkpoint, remove_files  # slow to import, and seldom used

        self._check_may_change("delete")
        self._saves.wait_for(check_storage_id(storage_id))
        record, is_inherited = self._journal.append_or_raise, self._is_inherited(storage_id)
        storage = self._storage_of(storage_id)
        if globs is not None:
            self._with_reserve(lambda: remove_files(storage, storage_id, globs, record, is_inherited=is_inherited))
        else:
            with contextlib.suppress(CheckpointDamagedError, CheckpointTooNewError):
                storage.manifest(storage_id)
            self._with_reserve(lambda: remove_checkpoint(storage, storage_id, record, is_inherited=is_inherited))

    def release(self, storage_id: str) -> bool:
        """Deletes a checkpoint that this trial no longer needs; returns False, and keeps it, if it is needed elsewhere.

        A checkpoint is kept if it is pinned, if it is a version of a model, if another trial began with it, or if the
        policy's `keep_every` keeps it. One rank calls, preferably the chief. On a node that does not see the home only
        pins and the policy are known.
        """
        from core_sdk._home.deletion import OtherTrials, is_kept_for_ever, release_checkpoint  # slow to import

        self._check_may_change("release")
        self._saves.wait_for(check_storage_id(storage_id))
        if self._folder is not None and is_kept_for_ever(self._folder, storage_id):
            return False
        if self._folder is None or is_home_spooled():
            if self._is_pinned(storage_id):
                return False
            self.delete(storage_id)
            return True
        self._others = others = self._others or OtherTrials(Home(self._folder.home_root), self._folder.trial_id)
        folder, storage = self._folder, self._storage_of(storage_id)
        try:
            self._with_reserve(lambda: release_checkpoint(folder, storage, storage_id, others))
        except CheckpointProtectedError:
            return False
        return True

    def _with_reserve(self, delete: Callable[[], object]) -> None:
        if self._folder is None:
            delete()
        else:
            with_reserve(self._folder.home_root, delete)

    def _is_pinned(self, storage_id: str) -> bool:
        checkpoints = () if self._folder is None else read_history(self._folder).checkpoints
        return any(each.pin is not None for each in checkpoints if each.record.storage_id == storage_id)

    def _is_inherited(self, storage_id: str) -> bool:
        found = self._recorded(storage_id)
        return found is not None and found.is_inherited

    def _storage_of(self, storage_id: str) -> Storage:
        """Returns the storage that has the checkpoint: this attempt's, or the one where the records say it lies."""
        if (url := self._earlier.get(storage_id)) is None:
            url = self._url_of_other(storage_id)
        if not url or url == self._storage.url:
            return self._storage
        if url not in self._other_storages:
            opened = storage_from_url(url)
            if self._other_storages.setdefault(url, opened) is not opened:
                opened.close()  # another thread was earlier
        return self._other_storages[url]

    def _url_of_other(self, storage_id: str) -> str:
        """Returns the URL of the storage of a checkpoint that earlier attempts of this trial have not stored."""
        try:
            self._storage.manifest(storage_id)
        except CheckpointNotFoundError:
            found = self._recorded(storage_id)
            return "" if found is None else found.record.storage
        except CheckpointError:
            pass  # whatever is done with the checkpoint raises it again
        return self._storage.url

    def _recorded(self, storage_id: str) -> RecordedCheckpoint | None:
        if self._folder is None or not self._folder.path.exists():
            return None  # a rank whose node does not see the home
        return find_recorded(Home(self._folder.home_root), self._folder, storage_id)

    def _check_may_change(self, call: str) -> None:
        if self._is_read_only:
            raise RuntimeError(
                f"{call}() was called by a writer, which only reads the checkpoints of the trial's own program"
            )
        self._journal.check_open()

    def _check_may_store(self, call: str, shard: bool) -> None:
        self._check_may_change(call)
        if not shard and not self._distributed.is_chief:
            raise RuntimeError(
                f"{call}() was called on rank {self._distributed.rank}; without shard=True only the chief calls it"
            )


def _comparable(keep: Keep) -> str | frozenset[str]:
    return keep if isinstance(keep, str) else frozenset(keep)


@contextlib.contextmanager
def _read(opened: AbstractContextManager[Path]) -> Iterator[Path]:
    from core_sdk.core._checkpoint._save import directory_named

    with opened as path, directory_named("restore_path()", "torch.load(path / 'model.pt')"):
        yield path
