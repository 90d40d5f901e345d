"""The memory of a node that keeps replicas: directories in `/dev/shm`, which survive the processes but not the machine.

Only their owner may read them. Their names are drawn at random, so that another user can neither guess nor take them.
They are found again by their prefix and their owner. No link is followed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from core_sdk.alive import AliveLock, is_alive
from core_sdk.errors import UnsafePathError
from core_sdk.files import read_regular, write_atomically
from core_sdk.records import FileEntry
from core_sdk.storage import check_file_name, checksum

SHARED_MEMORY = Path("/dev/shm")
REPLICA_VERSION = 1

_PREFIX = "core-sdk-replica-"
_LABEL = "replica.json"
_LOCK = "lock"
_FORGOTTEN_AFTER_S = 86_400.0


class RankFiles(msgspec.Struct, frozen=True):
    """The files and directories that one rank has written into a checkpoint."""

    files: dict[str, FileEntry]
    directories: list[str]

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files.values())


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a replica, which is written last: without it there is no replica."""

    version: int = REPLICA_VERSION
    home: str
    """The identity of the home."""
    trial_id: int
    attempt: int
    storage_id: str
    """The checkpoint that was being stored."""
    steps_completed: int
    metadata: dict[str, object]
    ranks: list[RankFiles]
    """The files of all ranks of the checkpoint; a node has those of some of them."""


class Replica:
    """A directory with the files of some ranks. It is locked as long as the process that has made it lives."""

    def __init__(self, path: Path, lock: AliveLock | None = None) -> None:
        self.path = path
        self._lock = lock

    def new_file(self, rank: int, name: str) -> BinaryIO:
        """Opens a new file of a rank for writing."""
        path = self.path_of(rank, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(path, flags, 0o600), "wb")

    def path_of(self, rank: int, name: str) -> Path:
        return self.path / str(rank) / name

    def complete(self, label: Label) -> None:
        write_atomically(self.path / _LABEL, msgspec.json.encode(label), is_durable=False)

    def label(self) -> Label | None:
        """Returns the description, or None for a replica that is not complete or not readable."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnsafePathError):
            label = msgspec.json.decode(read_regular(self.path / _LABEL), type=Label)
            for files in label.ranks:
                for name in (*files.files, *files.directories):
                    check_file_name(name.removesuffix("/"))
            return label if label.version == REPLICA_VERSION else None
        return None

    def check(self, rank: int, files: RankFiles) -> None:
        """Reads the files of a rank. Raises `OSError`, which names the first that is missing, torn or altered."""
        for name, entry in files.files.items():
            if checksum(self.path_of(rank, name)) != entry:
                raise OSError(f"{self.path_of(rank, name)} is not what was written")

    def holds(self, rank: int) -> bool:
        return (self.path / str(rank)).is_dir()

    def copy_to(self, directory: Path, rank: int, files: RankFiles) -> None:
        for name in files.directories:
            (directory / name).mkdir(parents=True, exist_ok=True)
        for name in files.files:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path_of(rank, name), directory / name, follow_symlinks=False)

    def remove(self) -> None:
        """Does nothing if it is gone."""
        # First, so that no half of it is taken for a replica.
        with contextlib.suppress(OSError):
            (self.path / _LABEL).unlink()
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()


class ReplicaMemory:
    """The replicas of one user on one node."""

    def __init__(self, root: Path = SHARED_MEMORY) -> None:
        self._root = root

    def new(self, size_bytes: int) -> Replica:
        """Makes an empty replica. Raises `OSError` if there is no such memory, or less than twice as much is free."""
        free_bytes = shutil.disk_usage(self._root).free
        if 2 * size_bytes > free_bytes:
            raise OSError(f"{self._root} has {free_bytes:,} bytes free, and replicas take at most half of that")
        path = self._root / f"{_PREFIX}{secrets.token_hex(16)}"
        path.mkdir(mode=0o700)
        return Replica(path, AliveLock(path / _LOCK))

    def found(self) -> Iterator[Replica]:
        """Yields the replicas of this user, complete or not."""
        with contextlib.suppress(OSError), os.scandir(self._root) as entries:
            for entry in entries:
                if entry.name.startswith(_PREFIX) and _is_private(entry):
                    yield Replica(Path(entry.path))

    def sweep(self) -> None:
        """Removes what dead processes have left: replicas that are not complete, and those of a day ago."""
        for replica in self.found():
            with contextlib.suppress(OSError):
                is_old = time.time() - replica.path.stat().st_mtime > _FORGOTTEN_AFTER_S
                if not is_alive(replica.path / _LOCK) and (is_old or replica.label() is None):
                    replica.remove()


def total_bytes(ranks: Iterable[RankFiles]) -> int:
    return sum(files.size_bytes for files in ranks)


def _is_private(entry: os.DirEntry[str]) -> bool:
    status = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700
