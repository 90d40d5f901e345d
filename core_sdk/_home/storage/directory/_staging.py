"""A checkpoint that is being written in a directory storage, by one rank or by several."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from core_sdk._ground.files import explained, fsync_directory, is_full, opened
from core_sdk._ground.ownership import give_to_owner_of, make_directory, share_as_parent
from core_sdk._ground.records import MANIFEST_NAME, FileEntry, Manifest, encode_manifest
from core_sdk._home.storage._checksum import checksum
from core_sdk._home.storage._manifest import completed
from core_sdk._home.storage._names import METADATA_NAME, RESERVED_NAMES
from core_sdk._home.storage._no_follow import is_at, opened_directory, opened_parent, write_new
from core_sdk._home.storage._open_files import flush_open_files, writable_mappings
from core_sdk._home.storage._shard import Shard, ShardUnion
from core_sdk._home.storage._space import not_enough_space, space_for
from core_sdk._home.storage._staging_area import LockedDirectory, StagingArea
from core_sdk._home.storage._storage import Selector, Staging
from core_sdk._home.storage._tree import file_sizes, source_tree, staged_tree, walk
from core_sdk.errors import CheckpointNotStoredError

# Fsyncs at the same time share the wait for the disk.
_NUM_FSYNC_THREADS = 4
# The resolution of CLOCK_REALTIME_COARSE, which Python has no name for: 1 to 10 ms.
_TICK_NS = int(time.clock_getres(5) * 1e9) if sys.platform == "linux" else 10_000_000


class _Stamp(NamedTuple):
    """The metadata that every write to a file changes, except a write through mapped memory."""

    size_bytes: int
    mtime_ns: int


class DirectoryStaging(Staging):
    """The chief's directory becomes the checkpoint: the other ranks rename their files into it."""

    def __init__(self, root: Path, locked: LockedDirectory, storage_id: str) -> None:
        self.path = locked.path / storage_id
        # Relative, since hosts may have mounted the storage at different paths.
        self.address = f"{locked.path.name}/{storage_id}"
        self.disk = self._root = root
        self._locked = locked
        self._storage_id = storage_id
        self._fsyncs = _FsyncThreads(root)
        self._sealed: dict[str, tuple[_Stamp, FileEntry]] = {}
        """The metadata and checksum of each sealed file."""
        self._directories: list[str] = []
        self._links: dict[str, str] = {}
        self._mapped_inodes: set[int] = set()
        self._is_cancelled = False
        try:
            make_directory(self.path, mode=0o777)
            self._directory = os.open(self.path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            locked.release()
            raise
        self._is_open = True

    def check_reachable(self, address: str) -> None:
        if not self._path_at(address).is_dir():
            raise self._failure(
                f"{os.uname().nodename} does not see there what the chief writes. All ranks need the same "
                "checkpoint_storage, and their hosts must share it"
            )

    def fill(self, source: Path, selector: Selector | None = None, *, copy: bool = True) -> None:
        tree = source_tree(source, selector)
        with self._refusals(), space_for(tree.size_bytes, self._root):
            tree.copy_to(self.path)

    def seal(self) -> Shard:
        with self._refusals():
            tree = staged_tree(self.path, self._directory)
            flush_open_files(tree, self._storage_id, str(self._root))
            stamps = {name: _stamp(self.path / name) for name in sorted(tree.files)}
            _await_next_tick(max((stamp.mtime_ns for stamp in stamps.values()), default=0))
            self._mapped_inodes = writable_mappings()
            for name in stamps:
                self._fsyncs.add(self.path / name)
            # Reads from the page cache while the fsyncs wait for the disk.
            self._sealed = {name: (stamp, self._checksum(name)) for name, stamp in stamps.items()}
        self._directories, self._links = tree.directories, tree.links
        return Shard({name: entry for name, (_, entry) in self._sealed.items()}, tree.directories, tree.links)

    def contribute(self, names: Sequence[str], address: str) -> None:
        target = self._path_at(address)
        with self._refusals():
            # The files may have changed while this rank waited for the others.
            self._check_unchanged(self.path)
            if target == self.path:
                return
            self._check_nothing_added({*self._sealed, *self._directories, *self._links})
            self._fsyncs.wait()
            with opened_directory(target) as directory:
                # Does not make missing parents: after the chief has given up, its directory must not come back.
                for name in self._directories:
                    with opened_parent(directory, name) as (parent, last), contextlib.suppress(FileExistsError):
                        os.mkdir(last, dir_fd=parent)
                for name, linked in self._links.items():
                    with opened_parent(directory, name) as (parent, last), contextlib.suppress(FileExistsError):
                        os.symlink(linked, last, dir_fd=parent)
                for name in names:
                    with (
                        opened_parent(self._directory, name) as (own_parent, last),
                        opened_parent(directory, name) as (parent, _),
                    ):
                        os.rename(last, last, src_dir_fd=own_parent, dst_dir_fd=parent)

    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        manifest, content = completed(self._storage_id, union, metadata)
        with self._refusals():
            write_new(self._directory, METADATA_NAME, content)
            write_new(self._directory, MANIFEST_NAME, encode_manifest(manifest))
            for name in (METADATA_NAME, MANIFEST_NAME, *union.directories, ""):
                self._fsyncs.add(self.path / name)
            self._fsyncs.wait()
            self._check_nothing_added({*union.files, *union.directories, *union.links, *RESERVED_NAMES})
            share_as_parent(self.path)  # the script's umask may have let the group write
            self._publish()
        return manifest

    def discard(self) -> None:
        if self._locked.is_ours:
            self._fsyncs.close()
            # Ranks that still contribute must not find the directory while it is being removed.
            with contextlib.suppress(OSError):
                self.path.rename(self.path.with_name("discarded"))
        if self._is_open:
            self._is_open = False
            os.close(self._directory)
        self._locked.release()

    def cancel(self) -> None:
        self._is_cancelled = True

    def _path_at(self, address: str) -> Path:
        return self._locked.path.parent / address

    def _publish(self) -> None:
        """Gives the checkpoint its name, which is the last step. If it raises, the checkpoint has no name."""
        self._check_cancelled()
        final_path = self._root / self._storage_id
        try:
            self._check_in_place(self.path)
            self.path.rename(final_path)
            self._check_in_place(final_path)
            fsync_directory(self._root)
            self.discard()
            # A write that comes after this check changes a checkpoint that is stored.
            self._check_unchanged(final_path)
        except BaseException:
            if not os.path.lexists(self.path):
                self._withdraw(final_path)
            raise

    def _check_in_place(self, path: Path) -> None:
        if not is_at(self._directory, path):
            raise self._failure("its directory was replaced by something else while it was being stored")

    def _withdraw(self, final_path: Path) -> None:
        try:
            StagingArea(self._root).remove(final_path)
        except OSError:
            # A directory without a manifest is not a checkpoint.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), opened_directory(final_path) as directory:
                os.unlink(MANIFEST_NAME, dir_fd=directory)

    def _check_unchanged(self, directory: Path) -> None:
        """Raises `CheckpointNotStoredError` if a sealed file has changed.

        Files that this process has mapped for writing are read again: writes through a mapping leave no other trace.
        """
        mapped_inodes = self._mapped_inodes | writable_mappings()
        for name, (stamp, entry) in self._sealed.items():
            path = directory / name
            if _stamp(path) != stamp or (path.lstat().st_ino in mapped_inodes and checksum(path) != entry):
                raise self._changed(name)

    def _check_nothing_added(self, known: Collection[str]) -> None:
        """Raises `CheckpointNotStoredError` for a file or directory that was added after the files were sealed."""
        for name, _ in walk(self.path):
            if name not in known:
                raise self._changed(name)

    def _checksum(self, name: str) -> FileEntry:
        self._check_cancelled()
        return checksum(self.path / name)

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise self._failure("it was cancelled")

    def _changed(self, name: str) -> CheckpointNotStoredError:
        return self._failure(
            f"{name!r} changed while it was being stored. Whatever writes to it must have ended before the block"
        )

    def _failure(self, reason: str) -> CheckpointNotStoredError:
        return CheckpointNotStoredError(self._storage_id, str(self._root), reason)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns errors of the operating system into ours."""
        try:
            yield
        except OSError as error:
            if is_full(error):
                raise not_enough_space(self._root, sum(file_sizes(self.path))) from error
            raise self._failure(str(explained(error))) from error


def _stamp(path: Path) -> _Stamp:
    status = path.lstat()
    return _Stamp(status.st_size, status.st_mtime_ns)


def _await_next_tick(mtime_ns: int) -> None:
    """Waits until a write would change the time stamp `mtime_ns`, since the kernel's clock for files ticks slowly."""
    rest_ns = mtime_ns + 2 * _TICK_NS - time.time_ns()
    if 0 < rest_ns <= 2 * _TICK_NS:  # otherwise the stamp comes from another machine's clock
        time.sleep(rest_ns / 1e9)


class _FsyncThreads:
    """Fsyncs files and directories in threads while the caller goes on, and gives them to the owner of the storage."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pool = ThreadPoolExecutor(_NUM_FSYNC_THREADS, thread_name_prefix="core-sdk-fsync")
        self._calls: list[Future[None]] = []

    def add(self, path: Path) -> None:
        self._calls.append(self._pool.submit(self._fsync, path))

    def wait(self) -> None:
        """Returns when all files are on disk. Raises the first `OSError`."""
        for call in self._calls:
            call.result()

    def close(self) -> None:
        """Drops the calls that have not begun. Does nothing the second time."""
        self._pool.shutdown(cancel_futures=True)

    def _fsync(self, path: Path) -> None:
        with opened(path, os.O_NOFOLLOW | os.O_NONBLOCK) as descriptor:
            give_to_owner_of(self._root, path, descriptor)
            os.fsync(descriptor)
