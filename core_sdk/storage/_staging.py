"""The part of a directory storage where checkpoints are written and removed, out of sight."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from core_sdk.alive import AliveLock, is_alive
from core_sdk.errors import CheckpointNotStoredError, NotEnoughSpaceError
from core_sdk.files import fsync_directory
from core_sdk.records import Manifest, encode_manifest, to_json
from core_sdk.storage._checksum import checksum
from core_sdk.storage._flush import Flusher
from core_sdk.storage._names import MANIFEST_NAME, METADATA_NAME, RESERVED_NAMES
from core_sdk.storage._storage import Staging
from core_sdk.storage._tree import Tree, scan, walk

logger = logging.getLogger("core_sdk.storage")

# Some shared file systems have no locks between machines: there, only what nobody touches for so long is dead.
_FOREIGN_GRACE_S = 3600.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Place:
    """A private directory on the storage's file system, owned by this process until `leave`."""

    def __init__(self, area: Path) -> None:
        token = f"{_this_machine()}-{uuid.uuid4().hex}"
        self.path = area / token
        self._lock_path = area / f"{token}.lock"
        # The lock comes first: a directory without one may be swept.
        self._lock = AliveLock(self._lock_path)
        self._process = os.getpid()
        try:
            self.path.mkdir()
        except OSError:
            self.leave()
            raise

    def leave(self) -> None:
        """Removes it with all it holds; does nothing the second time, and in a forked child."""
        if os.getpid() == self._process:
            _remove(self.path)
            self._lock_path.unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.leave()


class StagingArea:
    """`<root>/.staging`: the places of all processes that write to the storage."""

    def __init__(self, root: Path) -> None:
        self.path = root / ".staging"

    def claim(self) -> Place:
        self._create()
        return Place(self.path)

    def sweep(self) -> list[Path]:
        """Removes the places whose owners are dead; safe beside living ones and beside other sweepers."""
        swept = []
        for token in self._tokens():
            place = self.path / token
            if _is_abandoned(place) and _sweep(place):
                logger.info("removed %s, which a dead process had left behind", place)
                swept.append(place)
        return swept

    def _create(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.path.mkdir()
            # Whoever may write to the storage may stage in it.
            self.path.chmod(self.path.parent.stat().st_mode & 0o7777)

    def _tokens(self) -> list[str]:
        try:
            return sorted({path.name.removesuffix(".lock") for path in self.path.iterdir()})
        except FileNotFoundError:
            return []


class DirectoryStaging(Staging):
    """The staged directory has the storage id for its name, and is renamed to `<root>/<storage_id>` at the end."""

    def __init__(self, root: Path, place: Place, storage_id: str) -> None:
        self._root = root
        self._place = place
        self._storage_id = storage_id
        self.path = place.path / storage_id
        try:
            self.path.mkdir()
        except OSError:
            place.leave()
            raise

    def fill(self, tree: Tree) -> None:
        """Copies the files of another directory, if there is room for them."""
        free_bytes = shutil.disk_usage(self._root).free
        if tree.size_bytes > free_bytes:
            raise NotEnoughSpaceError(self._root, tree.size_bytes, free_bytes)
        with _refusals(self._root, self._storage_id, self.path):
            tree.copy_to(self.path)

    def commit(self, metadata: Mapping[str, Any]) -> Manifest:
        stored_metadata = to_json(metadata, "metadata")
        with _refusals(self._root, self._storage_id, self.path):
            manifest = self._seal(stored_metadata)
            self._publish()
        self.discard()
        return manifest

    def discard(self) -> None:
        self._place.leave()

    def _seal(self, metadata: dict[str, Any]) -> Manifest:
        tree = scan(self.path).without_reserved()
        tree.check_reserved()
        tree.replace_links(self.path)
        for name in RESERVED_NAMES:
            # What came with a copy of another checkpoint may be a hard link to that one's.
            (self.path / name).unlink(missing_ok=True)
        (self.path / METADATA_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(metadata)))
        names = sorted([*tree.files, METADATA_NAME])
        with Flusher() as flusher:
            for name in names:
                flusher.add(self.path / name)
            # While the disk works, from the page cache.
            files = {name: checksum(self.path / name) for name in names}
            manifest = Manifest(
                storage_id=self._storage_id,
                created=time.time(),
                files=files,
                directories=tree.directories,
                metadata=metadata,
            )
            (self.path / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
            for name in (MANIFEST_NAME, *tree.directories, ""):
                flusher.add(self.path / name)
        return manifest

    def _publish(self) -> None:
        final_path = self._root / self._storage_id
        self.path.rename(final_path)
        try:
            fsync_directory(self._root)
        except OSError:
            # Who sees it must be able to rely on it.
            final_path.rename(self.path)
            raise


@contextlib.contextmanager
def _refusals(root: Path, storage_id: str, staged: Path) -> Iterator[None]:
    """Turns what the disk refuses into our errors."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NotEnoughSpaceError(root, _size_bytes(staged), shutil.disk_usage(root).free) from error
        raise CheckpointNotStoredError(storage_id, str(root), str(error)) from error


def _size_bytes(directory: Path) -> int:
    return sum(entry.stat(follow_symlinks=False).st_size for name, entry in walk(directory) if not name.endswith("/"))


def _is_abandoned(place: Path) -> bool:
    lock_path = place.with_name(f"{place.name}.lock")
    try:
        if is_alive(lock_path):
            return False
        return place.name.startswith(_this_machine()) or _quiet_s(place, lock_path) > _FOREIGN_GRACE_S
    except OSError:
        return False  # another user's, or gone meanwhile


def _quiet_s(place: Path, lock_path: Path) -> float:
    """Time since the last change, to the lock, the directories or the files in them."""
    changes = [path.stat().st_mtime for path in (lock_path, place) if path.exists()]
    if place.exists():
        changes += [entry.stat(follow_symlinks=False).st_mtime for _, entry in walk(place)]
    return time.time() - max(changes, default=time.time())


def _sweep(place: Path) -> bool:
    lock_path = place.with_name(f"{place.name}.lock")
    try:
        # Held while removing, so that the place cannot come to life in between.
        lock = AliveLock(lock_path)
    except OSError:
        return False
    try:
        # Its owner may have left since it was listed: then only the lock, made anew by us, is there to be removed.
        was_there = place.exists()
        _remove(place)
        is_gone = not place.exists()
        if is_gone:
            lock_path.unlink(missing_ok=True)
        return was_there and is_gone
    finally:
        lock.release()


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        logger.warning("%s cannot be removed entirely; it takes space until somebody may", directory)


def _this_machine() -> str:
    """Alike in all containers of a machine, which see each other's locks, and different after it starts anew."""
    try:
        return _BOOT_ID.read_text().replace("-", "").strip()[:12]
    except FileNotFoundError:
        return f"{uuid.getnode():012x}"
