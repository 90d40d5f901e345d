"""Checkpoints in a bucket."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core_sdk._ground.records import MANIFEST_NAME, FileEntry, Manifest, encode_manifest
from core_sdk._home.storage._download import receiving
from core_sdk._home.storage._manifest import selected, without
from core_sdk._home.storage._names import check_storage_id
from core_sdk._home.storage._staging_area import LockedDirectory, StagingArea
from core_sdk._home.storage._storage import Selector, Staging, Storage
from core_sdk._home.storage._verify import ADDED, checked_manifest, compare, problem_of_size
from core_sdk._home.storage.bucket._bucket import Bucket, ObjectExistsError, ObjectMissingError, StoredObject
from core_sdk._home.storage.bucket._leases import Lease, is_leased
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._retry import Retry
from core_sdk._home.storage.bucket._retrying_bucket import TOMBSTONE, OversizedError, RetryingBucket
from core_sdk._home.storage.bucket._staging import BucketStaging
from core_sdk._home.storage.bucket._sweep import sweep
from core_sdk._home.storage.bucket.transfer._download import ContentError, Downloader, ObjectToDownload
from core_sdk._home.storage.bucket.transfer._progress import progress_of
from core_sdk.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointNotStoredError,
    CheckpointProtectedError,
    StorageError,
    StoragePermissionError,
)

logger = logging.getLogger("core_sdk.storage")


class BucketStorage(Storage):
    """Keeps checkpoints in a bucket. Files are staged in a local directory, and sent when they are contributed.

    `temp_dir` is that directory; by default the system's temporary directory, which TMPDIR sets. It needs room for one
    whole checkpoint. Raises `StorageError` if no directory can be made there.
    """

    def __init__(self, bucket: Bucket, *, temp_dir: Path | None = None, limits: Limits | None = None) -> None:
        self.url = bucket.url
        self._bucket = bucket
        self._limits = limits or Limits()
        self._objects = RetryingBucket(bucket, self._limits)
        self._closing = threading.Event()
        self._area = StagingArea(_private_directory(temp_dir or Path(tempfile.gettempdir()), bucket.url))

    def check_writable(self) -> None:
        try:
            locked = self._area.new_directory()
        except OSError as error:
            raise StorageError.not_writable(str(self._area.path), str(error)) from error
        with locked:
            # Really writes an object: the permission to read a bucket does not include the one to write.
            self._lease("check", locked).release()

    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        check_storage_id(storage_id)
        try:
            local = self._area.new_directory()
        except OSError as error:
            raise CheckpointNotStoredError(storage_id, str(self._area.path), str(error)) from error
        return BucketStaging(self._bucket, self._limits, storage_id, local, is_shared=is_shared)

    @contextlib.contextmanager
    def open(self, storage_id: str, selector: Selector | None = None) -> Iterator[Path]:
        check_storage_id(storage_id)
        with self._area.new_directory() as locked:
            self.download(storage_id, locked.path / storage_id, selector)
            yield locked.path / storage_id

    def download(self, storage_id: str, directory: Path, selector: Selector | None = None) -> None:
        with self._reading(storage_id), self._deletions_told_from_damage(storage_id):
            manifest, content, _ = self._read_checked(storage_id)
            names = selected([*manifest.resources, *manifest.links_by_name], selector)
            with receiving(directory, manifest, content, names) as files:
                self._fetch(manifest, {name: directory / name for name in files}, "fetching")

    def manifest(self, storage_id: str) -> Manifest:
        return self._read_checked(storage_id)[0]

    def verify(self, storage_id: str, selector: Selector | None = None) -> Manifest:
        with self._reading(storage_id), self._deletions_told_from_damage(storage_id):
            manifest = self.check(storage_id)
            self._fetch(manifest, dict.fromkeys(_files(selected(manifest.resources, selector))), "verifying")
        return manifest

    def check(self, storage_id: str) -> Manifest:
        manifest = self.manifest(storage_id)
        with self._deletions_told_from_damage(storage_id):
            self._check_listing(manifest)
        return manifest

    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> dict[str, int]:
        # Does not read the manifest, which may be damaged.
        if not self._is_stored(storage_id):
            raise CheckpointNotFoundError(storage_id, self._bucket.where(""))
        with self._area.new_directory() as locked, self._lease(storage_id, locked):
            remaining = None if globs is None else self._shrink(storage_id, globs)
            if remaining is None:
                self._remove(storage_id)
        return {} if remaining is None else remaining.resources

    def sweep(self) -> list[str]:
        return self._sweep(self._objects)

    def begin_sweep(self) -> None:
        threading.Thread(target=self._sweep_beside, name="core-sdk-sweep", daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._bucket.close()

    def _sweep_beside(self) -> None:
        """Sweeps until all is swept or the storage is closed. What remains is left to the next sweep."""
        retry = Retry(
            self._limits.deadline_s, self._closing, "Only the removal of what dead processes left waits for it"
        )
        try:
            self._sweep(RetryingBucket(self._bucket, self._limits, retry))
        except Exception as error:  # noqa: BLE001  the training must not hear of it
            # Closing the storage also closes the connections that the sweep uses.
            if not self._closing.is_set():
                self._warn_of_remains(error)

    def _sweep(self, objects: RetryingBucket) -> list[str]:
        # Leases first: the lock files in the area tell which of them are abandoned.
        try:
            swept = sweep(objects, self._limits.lease_s)
        except StorageError as error:
            # A user with the permissions will sweep it.
            self._warn_of_remains(error)
            return []
        return [*swept, *map(str, self._area.sweep())]

    def _warn_of_remains(self, error: Exception) -> None:
        logger.warning("what dead processes may have left in %s stays: %s", self._bucket.where(""), error)

    def _fetch(self, manifest: Manifest, paths: Mapping[str, Path | None], doing: str) -> None:
        storage_id = manifest.storage_id
        wanted = [ObjectToDownload(f"{storage_id}/{name}", manifest.files[name], path) for name, path in paths.items()]
        total_bytes = sum(each.entry.size_bytes for each in wanted)
        with progress_of(f"{doing} checkpoint {storage_id}", total_bytes) as progress:
            try:
                Downloader(self._bucket, self._limits, progress).fetch(wanted)
            except ContentError as error:
                name = error.object_name.removeprefix(f"{storage_id}/")
                if error.found is not None:
                    compare(manifest, name, error.found)
                problem = "is missing from the bucket, or was truncated"
                raise CheckpointDamagedError(storage_id, name, problem) from error

    def _check_listing(self, manifest: Manifest) -> None:
        """Compares names, sizes, and the store's own checksums where its listing has them."""
        folder = f"{manifest.storage_id}/"
        found = {item.name.removeprefix(folder): item for item in self._objects.all_under(folder)}
        for name in sorted(manifest.files.keys() | found.keys() - {MANIFEST_NAME} - set(manifest.removed)):
            if problem := _problem(manifest.files.get(name), found.get(name)):
                raise CheckpointDamagedError(manifest.storage_id, name, problem)

    @contextlib.contextmanager
    def _reading(self, storage_id: str) -> Iterator[None]:
        """Keeps the checkpoint from being deleted during the block, by a lease.

        A process that may only read the bucket, or has no room for the lease's lock, reads without one.
        """
        check_storage_id(storage_id)
        with contextlib.ExitStack() as held:
            lease: Lease | None = None
            with contextlib.suppress(OSError, StoragePermissionError):
                locked = held.enter_context(self._area.new_directory())
                lease = self._lease(storage_id, locked)
            try:
                yield
            finally:
                if lease is not None:
                    lease.end()

    def _lease(self, storage_id: str, locked: LockedDirectory) -> Lease:
        return Lease(self._objects, self._limits.lease_s, storage_id, locked.lock_path)

    @contextlib.contextmanager
    def deleting(self, storage_id: str) -> Iterator[None]:
        if is_leased(self._objects, self._limits.lease_s, storage_id):
            raise CheckpointProtectedError(storage_id, ["a process is reading it"], can_be_forced=False)
        yield

    @contextlib.contextmanager
    def _deletions_told_from_damage(self, storage_id: str) -> Iterator[None]:
        """Raises `CheckpointNotFoundError` if objects are missing because the checkpoint has been deleted."""
        try:
            yield
        except CheckpointDamagedError:
            self._read_manifest(storage_id)
            raise

    def _remove(self, storage_id: str) -> None:
        self._objects.remove(self._manifest_name(storage_id))
        folder = f"{storage_id}/"
        self._objects.remove_all(item.name for item in self._objects.all_under(folder))

    def _shrink(self, storage_id: str, globs: Sequence[str]) -> Manifest | None:
        """Changes the manifest, then removes the files. Returns the new manifest, or None if no files remain."""
        while True:
            manifest, _, version = self._read_checked(storage_id)
            remaining = without(manifest, globs)
            if remaining is None:
                return None
            try:
                self._objects.put(self._manifest_name(storage_id), encode_manifest(remaining), if_version=version)
            except ObjectExistsError:
                continue  # another process was first, or our answer was lost: a second pass does the same again
            self._objects.remove_all(f"{storage_id}/{name}" for name in _files(remaining.removed))
            return remaining

    def _read_checked(self, storage_id: str) -> tuple[Manifest, bytes, str]:
        """Returns the manifest, its content and its version. Fetches it again if it was damaged, perhaps on its way."""
        content, version = self._read_manifest(storage_id)
        try:
            return checked_manifest(content, storage_id), content, version
        except CheckpointDamagedError:
            content, version = self._read_manifest(storage_id)
            return checked_manifest(content, storage_id), content, version

    def _read_manifest(self, storage_id: str) -> tuple[bytes, str]:
        try:
            content, version = self._objects.read_version(self._manifest_name(storage_id))
        except ObjectMissingError as error:
            raise CheckpointNotFoundError(storage_id, self._bucket.where("")) from error
        except OversizedError as error:
            raise CheckpointDamagedError(storage_id, MANIFEST_NAME, str(error)) from error
        if content == TOMBSTONE:
            raise CheckpointNotFoundError(storage_id, self._bucket.where(""))
        return content, version

    def _manifest_name(self, storage_id: str) -> str:
        return f"{check_storage_id(storage_id)}/{MANIFEST_NAME}"

    def _is_stored(self, storage_id: str) -> bool:
        try:
            return self._objects.stat(self._manifest_name(storage_id)).size_bytes > len(TOMBSTONE)
        except ObjectMissingError:
            return False


def _problem(expected: FileEntry | None, found: StoredObject | None) -> str | None:
    if expected is None:
        return ADDED
    if found is None:
        return "is missing from the bucket"
    if found.crc32c not in (None, expected.crc32c) and found.size_bytes == expected.size_bytes:
        return f"has changed: the store's CRC-32C is {found.crc32c}, and was {expected.crc32c} when it was written"
    return problem_of_size(expected.size_bytes, found.size_bytes)


def _files(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.endswith("/")]


def _private_directory(parent: Path, url: str) -> Path:
    """Returns a directory for this user and this bucket; its locks tell which processes are alive."""
    try:
        return _private_root(parent) / hashlib.sha256(url.encode()).hexdigest()[:16]
    except OSError as error:
        raise StorageError.not_writable(str(parent), str(error)) from error


def _private_root(parent: Path) -> Path:
    root = parent / f"core-sdk-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700, parents=True)
    status = root.lstat()
    if root.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        # The directory belongs to another user: anybody may make directories there.
        return Path(tempfile.mkdtemp(prefix="core-sdk-", dir=parent))
    return root
