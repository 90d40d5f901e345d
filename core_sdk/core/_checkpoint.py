"""Checkpoints of the training: stored whole or not at all, verified whenever they are read."""

from __future__ import annotations

import contextlib
import enum
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from core_sdk.distributed import DistributedContext
from core_sdk.journal import JournalWriter
from core_sdk.records import MAX_INT, CheckpointDeleted, CheckpointStored, Manifest, from_json, to_json
from core_sdk.storage import Selector, Storage, check_storage_id

_STEPS = "steps_completed"


class DownloadMode(enum.Enum):
    """Whether the ranks of a node share what one of them fetches. On one rank both mean the same."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    NoSharedDownload = "NO_SHARED_DOWNLOAD"


class CheckpointContext:
    """Stores and reads checkpoints.

    A checkpoint is a directory of files under a storage id, with metadata. `metadata` must hold an int
    `steps_completed`, at least 0; its values may be what JSON keeps, NaN and infinities included. It is checked before
    anything is written: `ValueError` without `steps_completed`, `TypeError` for what JSON cannot keep.

    What stores raises `ReservedNameError` for a file metadata.json or .manifest.json, `UnsafePathError` for a link that
    leads outside and for devices and pipes, `NotEnoughSpaceError` or `CheckpointNotStoredError`; the checkpoint then
    does not exist. What reads raises `CheckpointNotFoundError`, or `CheckpointDamagedError` naming the file.

    A selector is called with names relative to the checkpoint, a directory's ending with "/", and accepts or rejects
    each; metadata.json always comes along. All calls block until the files are safe on disk, or read.
    """

    def __init__(self, storage: Storage, distributed: DistributedContext, journal: JournalWriter) -> None:
        self._storage = storage
        self._distributed = distributed
        self._journal = journal

    def upload(
        self,
        ckpt_dir: str | os.PathLike[str] | None,
        metadata: dict[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Stores a copy of the directory `ckpt_dir`, and returns the storage id; the directory is left as it is.

        With `shard=True` every rank calls, and the checkpoint is the union of their files; a rank with none passes None
        for `ckpt_dir`. Without, only the chief calls: `RuntimeError` on other ranks.
        """
        self._check_rank("upload", shard)
        if ckpt_dir is None:
            raise RuntimeError("upload() has no directory from any rank: pass ckpt_dir on at least one")
        metadata = _checked_metadata(metadata)
        self._journal.check_open()
        storage_id = str(uuid.uuid4())
        self._record(self._storage.upload(storage_id, Path(ckpt_dir), metadata, selector))
        return storage_id

    def store_path(
        self, metadata: dict[str, Any] | None = None, *, shard: bool = False
    ) -> AbstractContextManager[tuple[Path, str]]:
        """A context manager of `(path, storage_id)`: what lies in the directory `path` at the end is stored.

        If the block raises, nothing is stored. `metadata` may be added to inside the block. With `shard=True` every
        rank calls; without, only the chief: `RuntimeError` on other ranks.
        """
        self._check_rank("store_path", shard)
        return self._store(_checked_metadata(metadata))

    @contextlib.contextmanager
    def _store(self, metadata: dict[str, Any]) -> Iterator[tuple[Path, str]]:
        storage_id = str(uuid.uuid4())
        self._journal.check_open()
        with self._storage.stage(storage_id) as staging:
            yield staging.path, storage_id
            # Not in a child that was forked in the block: what the parent is still writing would be stored.
            self._journal.check_open()
            manifest = staging.commit(_checked_metadata(metadata))
        self._record(manifest)

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | os.PathLike[str],
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copies the checkpoint's files into `ckpt_dir`, each verified before it gets its name.

        Files that are there already, whole, are not copied again. `NotEnoughSpaceError` before anything is copied.
        """
        DownloadMode(download_mode)
        self._storage.download(storage_id, Path(ckpt_dir), selector)

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """What was given as `metadata` when the checkpoint was stored."""
        return dict(from_json(self._storage.manifest(storage_id).metadata))

    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> AbstractContextManager[Path]:
        """A context manager of a directory with the checkpoint's files, verified on entering; only read there.

        On a file system it is the checkpoint itself: a selector says which files to verify, and all are there.
        """
        DownloadMode(download_mode)
        return self._storage.open(check_storage_id(storage_id), selector)

    def delete(self, storage_id: str) -> None:
        """Deletes the checkpoint from the storage. It vanishes at once; then its space is freed."""
        self._journal.check_open()
        self._storage.delete(storage_id)
        self._journal.append(CheckpointDeleted(time=time.time(), storage_id=storage_id))

    def _check_rank(self, call: str, shard: bool) -> None:
        if not shard and not self._distributed.is_chief:
            raise RuntimeError(
                f"{call}() was called on rank {self._distributed.rank}; without shard=True only the chief calls it"
            )

    def _record(self, manifest: Manifest) -> None:
        self._journal.append(
            CheckpointStored(
                time=time.time(),
                storage_id=manifest.storage_id,
                storage=self._storage.url,
                steps_completed=manifest.metadata[_STEPS],
                metadata=manifest.metadata,
                resources=manifest.resources,
            )
        )


def _checked_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """`metadata` itself."""
    if metadata is None or _STEPS not in metadata:
        raise ValueError(f'metadata["{_STEPS}"] is missing: pass {{"{_STEPS}": …}}, the number of steps trained so far')
    steps_completed = to_json(metadata, "metadata")[_STEPS]
    if type(steps_completed) is not int or not 0 <= steps_completed < MAX_INT:
        raise ValueError(f'metadata["{_STEPS}"] is {metadata[_STEPS]!r}; it must be an int, at least 0')
    return metadata
