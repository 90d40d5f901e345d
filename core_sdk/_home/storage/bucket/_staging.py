"""A checkpoint that is being written for a bucket: first into a local directory, and from there to the bucket."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk._ground.records import MANIFEST_NAME, FileEntry, Manifest, encode_manifest
from core_sdk._home.storage._checksum import checksum, in_threads
from core_sdk._home.storage._manifest import completed
from core_sdk._home.storage._names import METADATA_NAME
from core_sdk._home.storage._no_follow import opened_directory
from core_sdk._home.storage._open_files import flush_open_files
from core_sdk._home.storage._shard import Shard, ShardUnion
from core_sdk._home.storage._space import space_for
from core_sdk._home.storage._staging_area import LockedDirectory
from core_sdk._home.storage._storage import Selector, Staging
from core_sdk._home.storage._tree import Tree, source_tree, staged_tree
from core_sdk._home.storage.bucket._bucket import Bucket, ObjectExistsError, ObjectMissingError
from core_sdk._home.storage.bucket._leases import Lease, LeaseLostError
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._retry import TransferCancelledError
from core_sdk._home.storage.bucket._retrying_bucket import RetryingBucket
from core_sdk._home.storage.bucket.transfer._progress import progress_of
from core_sdk._home.storage.bucket.transfer._upload import FileChangedError, FileToUpload, Uploader
from core_sdk.errors import CheckpointNotStoredError, StorageError, UnsafePathError

logger = logging.getLogger("core_sdk.storage")


class BucketStaging(Staging):
    """Stages files in a local directory. Each rank sends its own, so no disk is shared. The chief adds the manifest."""

    def __init__(
        self,
        bucket: Bucket,
        limits: Limits,
        storage_id: str,
        local: LockedDirectory,
        *,
        is_shared: bool,
    ) -> None:
        self.path = local.path
        self.disk = local.path.parent.parent
        self.address = f"{bucket.where('')}/{storage_id}"
        self._bucket = bucket
        self._limits = limits
        self._storage_id = storage_id
        self._local = local
        self._is_shared = is_shared
        self._objects = RetryingBucket(bucket, limits)
        self._cancelled = threading.Event()
        self._source: Tree | None = None
        self._sealed: dict[str, FileToUpload] = {}
        self._lease: Lease | None = None
        self._sent_names: list[str] = []
        self._manifest: bytes | None = None
        """The manifest that may be in the bucket by now."""
        self._is_kept = False
        """Whether what was sent stays: it is committed, or the chief decides, whose lease outlasts this rank's."""

    def check_reachable(self, address: str) -> None:
        if address != self.address:
            reason = f"rank 0 stores it as {address}. All ranks need the same checkpoint_storage"
            raise CheckpointNotStoredError(self._storage_id, self.address, reason)

    def fill(self, source: Path, selector: Selector | None = None, *, copy: bool = True) -> None:
        tree = source_tree(source, selector)
        if copy:
            with space_for(tree.size_bytes, self.path):
                tree.copy_to(self.path)
        else:
            self._source = tree

    def seal(self) -> Shard:
        # Links are replaced by copies, which need space.
        with space_for(0, self.path):
            tree = self._source or self._staged()
        paths = {name: tree.files[name].path for name in sorted(tree.files)}
        with in_threads(checksum, list(paths.values())) as entries:
            files = dict(zip(paths, entries, strict=True))
        self._sealed = {name: FileToUpload(paths[name], self._object(name), entry) for name, entry in files.items()}
        return Shard(files, tree.directories, tree.links)

    def _staged(self) -> Tree:
        try:
            with opened_directory(self.path) as directory:
                tree = staged_tree(self.path, directory)
        except NotADirectoryError as error:
            problem = "was replaced by something else"
            raise UnsafePathError("the checkpoint's directory", str(self.path), problem) from error
        flush_open_files(tree, self._storage_id, self._bucket.where(""))
        return tree

    def contribute(self, names: Sequence[str], address: str) -> None:
        with self._failures_named():
            if self._lease is None:
                self._check_id_is_free()
                self._lease = Lease(self._objects, self._limits.lease_s, self._storage_id, self._local.lock_path)
            self._sent_names += names
            files = [self._sealed[name] for name in names]
            total_bytes = sum(file.entry.size_bytes for file in files)
            with progress_of(f"storing checkpoint {self._storage_id}", total_bytes) as progress:
                Uploader(self._bucket, self._limits, self._cancelled, progress).send(files)

    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        manifest, content = completed(self._storage_id, union, metadata)
        with self._failures_named():
            self._sent_names.append(METADATA_NAME)
            self._objects.put(self._object(METADATA_NAME), content)
            self._check_all_there(manifest.files)
            if any(entry.size_bytes > self._limits.whole_bytes for entry in manifest.files.values()):
                # If an answer was lost, an upload was begun twice. All other uploads have ended by now.
                with self._failures_logged("uploads in parts that broke off may stay"):
                    self._objects.abort_uploads(f"{self._storage_id}/")
            self._put_manifest(encode_manifest(manifest))
        self._is_kept = True
        return manifest

    def cancel(self) -> None:
        self._cancelled.set()

    def discard(self) -> None:
        """Removes what was sent to the bucket. What cannot be removed now is swept later."""
        if self._local.is_ours and self._lease is not None:
            if self._is_kept:
                self._lease.end()
            else:
                try:
                    with self._failures_logged("what was sent of it stays until it is swept"):
                        self._remove_sent(self._lease)
                finally:
                    self._lease.abandon()
        self._local.release()

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._is_kept = True
        self.discard()

    def _remove_sent(self, lease: Lease) -> None:
        name = self._object(MANIFEST_NAME)
        if self._manifest is not None:
            self._remove_own_manifest(name)  # has a deadline of its own, since the checkpoint must not become visible
        objects = self._objects.briefly
        # Another rank may be about to commit, or a request of ours be under way. A tombstone keeps their manifest out.
        needs_tombstone = self._is_shared or self._manifest is not None
        if needs_tombstone and not objects.put_tombstone(name):
            return
        objects.remove_all(self._object(name) for name in self._sent_names)
        objects.abort_uploads(f"{self._storage_id}/")
        if not needs_tombstone:
            lease.end()

    def _check_id_is_free(self) -> None:
        """Raises `ObjectExistsError` before anything of another checkpoint could be overwritten."""
        with contextlib.suppress(ObjectMissingError):
            self._objects.stat(self._object(MANIFEST_NAME))
            raise ObjectExistsError(self._storage_id)

    def _check_all_there(self, files: Mapping[str, FileEntry]) -> None:
        """Raises if an object has vanished since it was sent: a sweep may have taken this process for dead."""
        found = {item.name: item for item in self._objects.all_under(f"{self._storage_id}/")}
        for name, entry in files.items():
            item = found.get(self._object(name))
            if item is None or item.size_bytes != entry.size_bytes or item.crc32c not in (None, entry.crc32c):
                raise _VanishedError(name)

    def _put_manifest(self, content: bytes) -> None:
        if self._cancelled.is_set():
            raise TransferCancelledError
        if self._lease is not None:
            self._lease.check()
        self._manifest = content
        try:
            self._objects.put(self._object(MANIFEST_NAME), content, if_absent=True)
        except ObjectExistsError:
            # It is ours if the answer to a first try was lost.
            if self._objects.read(self._object(MANIFEST_NAME)) != content:
                raise

    def _remove_own_manifest(self, name: str) -> None:
        """Removes our manifest if it is in the bucket. Whether the attempt to write it has succeeded is not known."""
        with contextlib.suppress(ObjectMissingError):
            # Read twice, since the first answer may have been damaged on its way.
            if self._manifest in (self._objects.read(name), self._objects.read(name)):
                self._objects.remove(name)

    def _object(self, name: str) -> str:
        return f"{self._storage_id}/{name}"

    @contextlib.contextmanager
    def _failures_logged(self, what: str) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            logger.warning("checkpoint %s: %s: %s", self._storage_id, what, error)

    @contextlib.contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if (reason := _reason(error)) is None:
                raise
            raise CheckpointNotStoredError(self._storage_id, self._bucket.where(""), reason) from error


class _VanishedError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} has vanished from the bucket, or was replaced, before all was sent")


def _reason(error: Exception) -> str | None:
    match error:
        case FileChangedError() | _VanishedError() | OSError():
            return str(error)
        case LeaseLostError():
            return "this process was held up for so long that others may have removed what it had sent"
        case ObjectMissingError():
            return "the store has dropped an upload in parts again and again before all parts had arrived"
        case ObjectExistsError():
            return "its id is taken: by another checkpoint, or by a process that removed what this one had sent"
        case TransferCancelledError():
            return "it was cancelled"
        case _:
            return None
