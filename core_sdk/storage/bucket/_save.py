"""One checkpoint's way into a bucket."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from core_sdk.errors import CheckpointNotStoredError, StorageError
from core_sdk.records import FileEntry, Manifest, encode_manifest
from core_sdk.storage._manifest import manifest_of, metadata_file
from core_sdk.storage._names import MANIFEST_NAME, METADATA_NAME
from core_sdk.storage._shard import ShardUnion
from core_sdk.storage.bucket._bucket import Bucket, ObjectExistsError, ObjectMissingError
from core_sdk.storage.bucket._deduplication import KnownContents
from core_sdk.storage.bucket._leases import Lease, LeaseLostError
from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._retry import TransferCancelledError
from core_sdk.storage.bucket._retrying_bucket import RetryingBucket
from core_sdk.storage.bucket.transfer._progress import progress_of
from core_sdk.storage.bucket.transfer._upload import FileChangedError, FileToUpload, Uploader

logger = logging.getLogger("core_sdk.storage")


class BucketSave:
    """Sends files, by one rank or by several, and publishes the manifest; or takes back what was sent.

    The steps: `send`, by every rank; `publish`, by the chief once all have sent. Then `settle`; or `withdraw` at any
    moment. `cancel` may be called by another thread, and makes the step under way fail.
    """

    def __init__(
        self,
        bucket: Bucket,
        limits: Limits,
        contents: KnownContents,
        storage_id: str,
        lock_path: Path,
        *,
        is_shared: bool = False,
    ) -> None:
        """`lock_path` is held locked by this process for as long as it lives; `is_shared` by several ranks."""
        self._bucket = bucket
        self._limits = limits
        self._contents = contents
        self._storage_id = storage_id
        self._lock_path = lock_path
        self._is_shared = is_shared
        self._objects = RetryingBucket(bucket, limits)
        self._cancelled = threading.Event()
        self._lease: Lease | None = None
        self._names: list[str] = []
        self._manifest: bytes | None = None
        """What may be in the bucket by now."""
        self._is_published = False

    def send(self, files: Mapping[str, tuple[Path, FileEntry]]) -> None:
        """Files by their names in the checkpoint. Raises `CheckpointNotStoredError`, `StorageError`."""
        with _Refusals(self._storage_id, self._bucket.where("")):
            if self._lease is None:
                self._check_id_is_free()
                self._lease = Lease(self._bucket, self._limits, self._storage_id, self._lock_path)
            self._names += files
            sendings = [FileToUpload(path, self._object(name), entry) for name, (path, entry) in files.items()]
            total_bytes = sum(entry.size_bytes for _, entry in files.values())
            with progress_of(f"storing checkpoint {self._storage_id}", total_bytes) as progress:
                Uploader(self._bucket, self._limits, self._cancelled, progress, self._contents.find).send(sendings)

    def publish(self, union: ShardUnion, metadata: dict[str, object]) -> Manifest:
        """Makes the checkpoint exist. Raises `CheckpointNotStoredError`, `StorageError`."""
        content, entry = metadata_file(metadata)
        manifest = manifest_of(self._storage_id, union, metadata, entry)
        with _Refusals(self._storage_id, self._bucket.where("")):
            self._names.append(METADATA_NAME)
            self._objects.put(self._object(METADATA_NAME), content)
            self._check_all_there(manifest)
            if any(entry.size_bytes > self._limits.whole_bytes for entry in manifest.files.values()):
                self._abort_strays()
            self._put_manifest(encode_manifest(manifest))
        self._is_published = True
        self._contents.learn(manifest)
        return manifest

    def cancel(self) -> None:
        self._cancelled.set()

    def settle(self) -> None:
        """All is well: what was sent stays."""
        if self._lease is not None:
            if not self._is_published:
                # The chief has: what it holds need not be sent again by this rank either.
                self._contents.remember([self._storage_id])
            try:
                self._lease.release()
            except StorageError as error:
                # The next sweep finds a checkpoint that is whole, and removes the claim.
                logger.warning("the claim on checkpoint %s stays for now: %s", self._storage_id, error)

    def withdraw(self) -> None:
        """Removes what was sent, unless the checkpoint has come to exist; what cannot be removed now is swept later."""
        if self._lease is None:
            return
        if self._is_published:
            self.settle()
            return
        try:
            self._take_back(self._lease)
        except StorageError as error:
            logger.warning("what was sent of checkpoint %s stays until it is swept: %s", self._storage_id, error)
        finally:
            self._lease.abandon()

    def _take_back(self, lease: Lease) -> None:
        name = self._object(MANIFEST_NAME)
        if self._manifest is not None:
            self._remove_own_manifest(name)
        # The chief of others may be about to publish, or a request of ours still under way: nothing can come now.
        is_barred = self._is_shared or self._manifest is not None
        if is_barred and not self._objects.bar(name):
            return
        self._objects.remove_all(self._object(name) for name in self._names)
        self._objects.abort_uploads(f"{self._storage_id}/")
        if not is_barred:
            lease.release()

    def _check_id_is_free(self) -> None:
        """Before anything of another checkpoint could be overwritten."""
        with contextlib.suppress(ObjectMissingError):
            self._objects.stat(self._object(MANIFEST_NAME))
            raise ObjectExistsError(self._storage_id)

    def _check_all_there(self, manifest: Manifest) -> None:
        """Nothing has gone since it was sent, by a sweep that took us for dead, say."""
        found = {item.name: item for item in self._objects.all_under(f"{self._storage_id}/")}
        for name, entry in manifest.files.items():
            item = found.get(self._object(name))
            if item is None or item.size_bytes != entry.size_bytes or item.crc32c not in (None, entry.crc32c):
                raise _VanishedError(name)

    def _abort_strays(self) -> None:
        """An upload whose beginning we were never told of, and which we began again. All others have ended by now."""
        try:
            self._objects.abort_uploads(f"{self._storage_id}/")
        except StorageError as error:
            logger.warning("uploads in parts that broke off may stay of checkpoint %s: %s", self._storage_id, error)

    def _put_manifest(self, content: bytes) -> None:
        if self._cancelled.is_set():
            raise TransferCancelledError
        if self._lease is not None:
            self._lease.check()
        self._manifest = content
        try:
            self._objects.put(self._object(MANIFEST_NAME), content, if_absent=True)
        except ObjectExistsError:
            # Ours, if the answer to a first try was lost.
            if self._objects.read(self._object(MANIFEST_NAME)) != content:
                raise

    def _remove_own_manifest(self, name: str) -> None:
        """If it is there, after an attempt to write it of which we do not know how it ended."""
        with contextlib.suppress(ObjectMissingError):
            # The second time, if the first was damaged on its way.
            if self._manifest in (self._objects.read(name), self._objects.read(name)):
                self._objects.remove_all([name])

    def _object(self, name: str) -> str:
        return f"{self._storage_id}/{name}"


class _VanishedError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} has vanished from the bucket, or was replaced, before all was sent")


class _Refusals:
    """Turns what goes wrong on the way into our errors."""

    def __init__(self, storage_id: str, where: str) -> None:
        self._storage_id = storage_id
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        reason = _reason(exc_val)
        if reason is not None:
            raise CheckpointNotStoredError(self._storage_id, self._where, reason) from exc_val


def _reason(error: BaseException | None) -> str | None:
    match error:
        case FileChangedError() | _VanishedError() | OSError():
            return str(error)
        case LeaseLostError():
            return "this process was held up for so long that others may have removed what it had sent"
        case ObjectMissingError():
            return "its parts were removed, by a process that took this one for dead"
        case ObjectExistsError():
            return "its id is taken: by another checkpoint, or by a process that removed what this one had sent"
        case TransferCancelledError():
            return "it was cancelled"
        case _:
            return None
