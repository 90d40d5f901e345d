"""A checkpoint being written in a directory storage, alone or together with other ranks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core_sdk.errors import CheckpointNotStoredError, NotEnoughSpaceError
from core_sdk.files import fsync_directory
from core_sdk.records import FileEntry, Manifest, encode_manifest, to_json
from core_sdk.storage._checksum import checksum
from core_sdk.storage._manifest import manifest_of, metadata_file
from core_sdk.storage._names import MANIFEST_NAME, METADATA_NAME, RESERVED_NAMES
from core_sdk.storage._shard import Shard, ShardUnion, unite
from core_sdk.storage._staging_area import LockedDirectory, StagingArea
from core_sdk.storage._storage import Selector, ShardStaging, Staging
from core_sdk.storage._tree import Tree, source_tree, staged_tree, walk
from core_sdk.storage.directory._fsync import FsyncThreads
from core_sdk.storage.directory._memory_maps import writable_mappings

# CLOCK_REALTIME_COARSE, which Python has no name for: 1 to 10 ms.
_TICK_NS = int(time.clock_getres(5) * 1e9) if sys.platform == "linux" else 10_000_000


class DirectoryStaging(Staging):
    """A checkpoint of one process."""

    def __init__(self, staged: CheckpointDirectory) -> None:
        self._staged = staged
        self.path = staged.path

    def fill(self, source: Path, selector: Selector | None = None) -> None:
        self._staged.fill(source_tree(source, selector))

    def commit(self, metadata: Mapping[str, Any]) -> Manifest:
        stored_metadata = to_json(metadata, "metadata")
        with self._staged.refusals():
            # One for all: two would wait for the disk twice.
            with FsyncThreads() as flusher:
                shard = self._staged.seal(flusher)
                manifest = self._staged.describe(unite([shard]), stored_metadata, flusher)
            self._staged.check_nothing_added()
            self._staged.publish()
        return manifest

    def discard(self) -> None:
        self._staged.discard()

    def cancel(self) -> None:
        self._staged.cancel()


class DirectoryShardStaging(ShardStaging):
    """The chief's staged directory becomes the checkpoint: the others rename their files into it."""

    def __init__(self, staged: CheckpointDirectory) -> None:
        self._staged = staged
        self._directories: list[str] = []
        self.path = staged.path
        # Relative, since hosts may have mounted the storage at different places.
        self.address = str(staged.path.relative_to(staged.area))

    def check_reachable(self, address: str) -> None:
        if not (self._staged.area / address).is_dir():
            raise CheckpointNotStoredError(
                self._staged.storage_id,
                str(self._staged.root),
                f"{os.uname().nodename} does not see there what the chief writes. All ranks need the same "
                "checkpoint_storage, and their hosts must share it",
            )

    def fill(self, source: Path, selector: Selector | None = None) -> None:
        self._staged.fill(source_tree(source, selector))

    def seal(self) -> Shard:
        with self._staged.refusals():
            with FsyncThreads() as flusher:
                shard = self._staged.seal(flusher)
            self._staged.check_unchanged()
            self._staged.check_nothing_added()
        self._directories = shard.directories
        return shard

    def contribute(self, names: Sequence[str], address: str) -> None:
        target = self._staged.area / address
        with self._staged.refusals():
            # Others may have been long in coming so far.
            self._staged.check_unchanged()
            if target == self.path:
                return
            # Without their parents: if the chief has given up, nothing must be made anew.
            for name in self._directories:
                (target / name).mkdir(exist_ok=True)
            for name in names:
                (self.path / name).rename(target / name)

    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        stored_metadata = to_json(metadata, "metadata")
        with self._staged.refusals():
            with FsyncThreads() as flusher:
                manifest = self._staged.describe(union, stored_metadata, flusher)
            self._staged.publish()
        return manifest

    def discard(self) -> None:
        self._staged.hide()
        self._staged.discard()

    def cancel(self) -> None:
        self._staged.cancel()


class _Stamp(NamedTuple):
    """What a write to a file changes, but for one through memory that is mapped."""

    size_bytes: int
    mtime_ns: int


class _Sealed(NamedTuple):
    """A file as it was when its checksum was taken."""

    stamp: _Stamp
    entry: FileEntry


class CheckpointDirectory:
    """Has the storage id for its name, and is renamed to `<root>/<storage_id>` at the end."""

    def __init__(self, root: Path, place: LockedDirectory, storage_id: str) -> None:
        self.root = root
        self.area = place.path.parent
        self.storage_id = storage_id
        self.path = place.path / storage_id
        self._place = place
        self._sealed: dict[str, _Sealed] = {}
        self._mapped: set[int] = set()
        self._sealed_directories: list[str] = []
        self._is_cancelled = False
        try:
            self.path.mkdir()
        except OSError:
            place.leave()
            raise

    def fill(self, tree: Tree) -> None:
        free_bytes = shutil.disk_usage(self.root).free
        if tree.size_bytes > free_bytes:
            raise NotEnoughSpaceError(self.root, tree.size_bytes, free_bytes)
        with self.refusals():
            tree.copy_to(self.path)

    def seal(self, flusher: FsyncThreads) -> Shard:
        """What the script wrote, with its checksums; `flusher` makes it durable."""
        tree = staged_tree(self.path)
        names = sorted(tree.files)
        stamps = {name: _stamp(self.path / name) for name in names}
        _await_next_tick(max((stamp.mtime_ns for stamp in stamps.values()), default=0))
        self._mapped = writable_mappings()
        self._sealed_directories = tree.directories
        for name in names:
            flusher.add(self.path / name)
        # While the disk works, from the page cache.
        self._sealed = {name: _Sealed(stamps[name], self._checksum(name)) for name in names}
        return Shard({name: sealed.entry for name, sealed in self._sealed.items()}, tree.directories)

    def check_unchanged(self, directory: Path | None = None) -> None:
        """Raises `CheckpointNotStoredError` if a sealed file is not any more what its checksum says.

        Files that this process has mapped into its memory are read again: writes there leave no other trace.
        """
        directory = directory or self.path
        mapped = self._mapped | writable_mappings()
        for name, sealed in self._sealed.items():
            path = directory / name
            if _stamp(path) != sealed.stamp or (path.lstat().st_ino in mapped and checksum(path) != sealed.entry):
                raise self._changed(name)

    def check_nothing_added(self) -> None:
        """Likewise, for what has come since; only while no other rank brings its files."""
        known = {*self._sealed, *self._sealed_directories, *RESERVED_NAMES}
        for name, _ in walk(self.path):
            if name not in known:
                raise self._changed(name)

    def describe(self, union: ShardUnion, metadata: dict[str, Any], flusher: FsyncThreads) -> Manifest:
        """Writes metadata and manifest; `flusher` makes them and all directories durable."""
        content, entry = metadata_file(metadata)
        _write_new(self.path / METADATA_NAME, content)
        manifest = manifest_of(self.storage_id, union, metadata, entry)
        _write_new(self.path / MANIFEST_NAME, encode_manifest(manifest))
        for name in (METADATA_NAME, MANIFEST_NAME, *union.directories, ""):
            flusher.add(self.path / name)
        return manifest

    def publish(self) -> None:
        """Gives the checkpoint its name, as the last thing of all; or raises, and it has none."""
        self._check_cancelled()
        final_path = self.root / self.storage_id
        try:
            self.path.rename(final_path)
            fsync_directory(self.root)
            self.discard()
            # What is written from now on is written into a stored checkpoint.
            self.check_unchanged(final_path)
        except BaseException:
            if not self.path.exists():
                self._withdraw(final_path)
            raise

    def _withdraw(self, final_path: Path) -> None:
        """Who sees it must be able to rely on it."""
        try:
            StagingArea(self.root).remove(final_path)
        except OSError:
            # Without its manifest it is no checkpoint.
            with contextlib.suppress(FileNotFoundError):
                (final_path / MANIFEST_NAME).unlink()

    def hide(self) -> None:
        """Ranks that still bring their files cannot find it any more while it is being removed."""
        if self._place.is_ours:
            with contextlib.suppress(OSError):
                self.path.rename(self.path.with_name("discarded"))

    def discard(self) -> None:
        self._place.leave()

    def cancel(self) -> None:
        self._is_cancelled = True

    @contextlib.contextmanager
    def refusals(self) -> Iterator[None]:
        """Turns what the disk refuses into our errors."""
        try:
            yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                free_bytes = shutil.disk_usage(self.root).free
                raise NotEnoughSpaceError(self.root, _size_bytes(self.path), free_bytes) from error
            raise CheckpointNotStoredError(self.storage_id, str(self.root), str(error)) from error

    def _checksum(self, name: str) -> FileEntry:
        self._check_cancelled()
        return checksum(self.path / name)

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise CheckpointNotStoredError(self.storage_id, str(self.root), "it was cancelled")

    def _changed(self, name: str) -> CheckpointNotStoredError:
        reason = f"{name!r} changed while it was being stored. Whatever writes to it must have ended before the block"
        return CheckpointNotStoredError(self.storage_id, str(self.root), reason)


def _stamp(path: Path) -> _Stamp:
    status = path.lstat()
    return _Stamp(status.st_size, status.st_mtime_ns)


def _await_next_tick(mtime_ns: int) -> None:
    """Until a write would change a time stamp that says `mtime_ns`: the kernel's clock for files ticks slowly."""
    rest_ns = mtime_ns + 2 * _TICK_NS - time.time_ns()
    if 0 < rest_ns <= 2 * _TICK_NS:  # else another machine's clock has stamped it
        time.sleep(rest_ns / 1e9)


def _write_new(path: Path, content: bytes) -> None:
    """Never through a link that somebody has put there."""
    with path.open("xb") as file:
        file.write(content)


def _size_bytes(directory: Path) -> int:
    return sum(entry.stat(follow_symlinks=False).st_size for name, entry in walk(directory) if not name.endswith("/"))
