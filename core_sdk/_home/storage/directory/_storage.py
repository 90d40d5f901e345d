"""Checkpoints in a directory, of one machine or of a file system that many share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_sdk._ground.alive import AliveLock, once_free
from core_sdk._ground.environment import path_at_home
from core_sdk._ground.files import explained, file_url, fsync_directory, fsync_tree, write_atomically
from core_sdk._ground.records import MANIFEST_NAME, Manifest, encode_manifest
from core_sdk._home.storage._manifest import without
from core_sdk._home.storage._names import check_storage_id
from core_sdk._home.storage._no_follow import first_replaced, opened_directory, remove
from core_sdk._home.storage._staging_area import StagingArea
from core_sdk._home.storage._storage import Selector, Staging, Storage
from core_sdk._home.storage._verify import is_checkpoint, read_manifest, verify
from core_sdk.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointNotStoredError,
    CheckpointProtectedError,
    StorageError,
    UnsafePathError,
)

# A deletion is recorded and then hides the checkpoint, which takes milliseconds unless its process is suspended.
_DELETION_S = 10.0


class DirectoryStorage(Storage):
    """Checkpoints in the directory `root`, which is made when something is stored. If it is missing, there are none.

    The directories above it are made by `check_writable` only: no save brings back a home that was renamed or removed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._held_alone: dict[str, AliveLock] = {}
        """The locks of the checkpoints that are about to be deleted."""
        self.url = file_url(path_at_home(self.root))

    @property
    def _area(self) -> StagingArea:
        return StagingArea(self.root)

    def check_writable(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            # Really writes: permissions do not show that a file system is read-only or has no locks.
            self._area.new_directory().release()
        except OSError as error:
            raise StorageError.not_writable(str(self.root), explained(error).strerror or str(error)) from error

    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        from core_sdk._home.storage.directory._staging import DirectoryStaging  # many trainings store nothing

        check_storage_id(storage_id)
        try:
            return DirectoryStaging(self.root, self._area.new_directory(), storage_id)
        except FileNotFoundError as error:
            gone = (
                f"{os.uname().nodename} does not see it: it was renamed or removed, or lies on the disk of another host"
            )
            raise CheckpointNotStoredError(storage_id, str(self.root), gone) from error
        except OSError as error:
            raise CheckpointNotStoredError(storage_id, str(self.root), str(explained(error))) from error

    @contextlib.contextmanager
    def open(self, storage_id: str, selector: Selector | None = None) -> Iterator[Path]:
        with self._reading(storage_id):
            self._verify(storage_id, selector)
            yield self._path(storage_id)

    def download(self, storage_id: str, directory: Path, selector: Selector | None = None) -> None:
        from core_sdk._home.storage._download import download  # few trainings read a checkpoint

        # A directory within the staging area is no part of the storage yet.
        if _is_within(directory, self.root) and not _is_within(directory, self._area.path):
            problem = f"lies inside the storage {self.root} itself: download to another directory"
            raise UnsafePathError("the directory", str(directory), problem)
        with self._reading(storage_id), self._deletions_told_from_damage(storage_id):
            manifest = self.manifest(storage_id)
            download(self._path(storage_id), directory, manifest, selector)

    def manifest(self, storage_id: str) -> Manifest:
        return read_manifest(self._path(storage_id))

    def verify(self, storage_id: str, selector: Selector | None = None) -> Manifest:
        with self._reading(storage_id):
            return self._verify(storage_id, selector)

    def _verify(self, storage_id: str, selector: Selector | None) -> Manifest:
        manifest = self.manifest(storage_id)
        with self._deletions_told_from_damage(storage_id):
            verify(self._path(storage_id), manifest, selector)
        return manifest

    def check(self, storage_id: str) -> Manifest:
        return self.verify(storage_id)  # a disk does not report its checksums, if it has any

    @contextlib.contextmanager
    def receive(self, storage_id: str) -> Iterator[Path]:
        """Gives a directory for the files and the manifest of a checkpoint that was stored elsewhere.

        At the end of the block the files are verified and the checkpoint is stored. If it was stored already, that one
        stays.
        """
        target = self._path(storage_id)
        with self._area.new_directory() as place:
            # The manifest is checked against the directory's name.
            directory = place.path / storage_id
            directory.mkdir()
            yield directory
            verify(directory, read_manifest(directory))
            fsync_tree(directory)
            if not target.exists():
                directory.rename(target)
                fsync_directory(self.root)

    @contextlib.contextmanager
    def _reading(self, storage_id: str) -> Iterator[None]:
        """Keeps the checkpoint from being deleted during the block, by a lock on its manifest.

        A manifest that is missing, and a file system without locks, are left to the block.
        """
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                held.callback(self._lock_to_read(storage_id).release)
            yield

    def _lock_to_read(self, storage_id: str) -> AliveLock:
        """Waits for a process that is about to delete the checkpoint, or that only looks whether it may."""
        try:
            return once_free(lambda: AliveLock.shared(self._path(storage_id) / MANIFEST_NAME), _DELETION_S)
        except BlockingIOError as error:
            raise CheckpointNotFoundError(storage_id, str(self.root)) from error

    @contextlib.contextmanager
    def deleting(self, storage_id: str) -> Iterator[None]:
        try:
            self._held_alone[storage_id] = AliveLock.alone(self._path(storage_id) / MANIFEST_NAME)
        except BlockingIOError as error:
            raise CheckpointProtectedError(storage_id, ["a process is reading it"], can_be_forced=False) from error
        except OSError:
            pass
        try:
            yield
        finally:
            self._let_go(storage_id)

    def _let_go(self, storage_id: str) -> None:
        if (lock := self._held_alone.pop(storage_id, None)) is not None:
            lock.release()

    @contextlib.contextmanager
    def _deletions_told_from_damage(self, storage_id: str) -> Iterator[None]:
        """Raises `CheckpointNotFoundError` if files are missing because the checkpoint has been deleted."""
        try:
            yield
        except (CheckpointDamagedError, FileNotFoundError) as error:
            if self._path(storage_id).exists():
                raise
            raise CheckpointNotFoundError(storage_id, str(self.root)) from error

    def delete(self, storage_id: str, globs: Sequence[str] | None = None) -> dict[str, int]:
        path = self._path(storage_id)
        if not is_checkpoint(path):
            raise CheckpointNotFoundError(storage_id, str(self.root))
        remaining = None if globs is None else without(self.manifest(storage_id), globs)
        if remaining is None:
            self._remove(storage_id)
            return {}
        with self._area.new_directory() as locked, opened_directory(path) as directory:
            if replaced := first_replaced(directory, remaining.removed):
                raise CheckpointDamagedError(storage_id, replaced, "is not a directory any more")
            # From here on the other files are no part of the checkpoint, even before they are removed.
            write_atomically(locked.path / MANIFEST_NAME, encode_manifest(remaining))
            os.rename(locked.path / MANIFEST_NAME, MANIFEST_NAME, dst_dir_fd=directory)
            os.fsync(directory)
            remove(directory, remaining.removed)
        return remaining.resources

    def _remove(self, storage_id: str) -> None:
        try:
            # NFS keeps a file that is open: the lock is released once nobody can find the checkpoint any more.
            self._area.remove(self._path(storage_id), lambda: self._let_go(storage_id))
        except FileNotFoundError as error:  # another process was first
            raise CheckpointNotFoundError(storage_id, str(self.root)) from error

    def sweep(self) -> list[str]:
        return [str(path) for path in self._area.sweep()]

    def begin_sweep(self) -> None:
        self.sweep()

    def close(self) -> None:
        pass

    def _path(self, storage_id: str) -> Path:
        return self.root / check_storage_id(storage_id)


def _is_within(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
