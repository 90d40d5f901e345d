"""The hidden directory in which checkpoints are written and removed. What dead processes leave there is swept."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from core_sdk._ground.alive import AliveLock, is_alive
from core_sdk._ground.files import fsync_directory, is_full
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import MANIFEST_NAME
from core_sdk._home.storage._tree import walk

logger = logging.getLogger("core_sdk.storage")

# Some shared file systems have no locks between machines. Another machine's directory is swept only if it has not
# changed for this long.
_FOREIGN_GRACE_S = 3600.0
_TOKEN = re.compile(r"[0-9a-f]{12}-[0-9a-f]{32}")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class LockedDirectory:
    """A private directory on the storage's file system, owned by this process until `release`."""

    def __init__(self, area: Path) -> None:
        # The lock comes first: a directory without one may be swept.
        self._lock, self.lock_path = _new_lock(area)
        self.path = self.lock_path.with_suffix("")
        self._process = os.getpid()
        try:
            make_directory(self.path, mode=0o777)
        except OSError:
            self.release()
            raise

    @property
    def is_ours(self) -> bool:
        """Whether this process has made the directory; False in a forked child."""
        return os.getpid() == self._process

    def release(self) -> None:
        """Removes the directory with all that it holds. Does nothing the second time, and in a forked child."""
        if self.is_ours:
            remove_tree(self.path)
            # What cannot be removed is swept later. The checkpoint is stored: this must not fail the save.
            with contextlib.suppress(OSError):
                self.lock_path.unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> LockedDirectory:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class StagingArea:
    """`<root>/.staging`: the places of all processes that write to the storage."""

    def __init__(self, root: Path) -> None:
        self.path = root / ".staging"

    def new_directory(self) -> LockedDirectory:
        self._create()
        return LockedDirectory(self.path)

    def remove(self, directory: Path, on_hidden: Callable[[], object] = lambda: None) -> None:
        """Removes a directory of the storage. It is hidden, durably, before its first file is removed."""
        try:
            place = self.new_directory()
        except OSError as error:
            if not is_full(error):
                raise
            # The disk is full; a directory without a lock needs no space. If a sweep removes it first, that is no harm.
            hidden = _hide(directory, self.path / _new_token())
            on_hidden()
            remove_tree(hidden)
        else:
            with place:
                hidden = _hide(directory, place.path / directory.name)
                on_hidden()
                remove_tree(hidden)

    def sweep(self) -> list[Path]:
        """Removes the directories of dead processes. Living processes and other sweeps may run meanwhile."""
        swept = []
        for token in self._tokens():
            place = self.path / token
            if _is_abandoned(place) and _sweep(place):
                logger.info("removed %s, which a dead process had left behind", place)
                swept.append(place)
        return swept

    def _create(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            make_directory(self.path, mode=0o777)
            # Every user who may write to the storage may stage checkpoints in it.
            self.path.chmod(self.path.parent.stat().st_mode & 0o7777)
        if self.path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link; replace it by a directory", str(self.path))

    def _tokens(self) -> list[str]:
        if self.path.is_symlink():
            return []  # a link leads to files that are not ours
        try:
            names = {path.name.removesuffix(".lock") for path in self.path.iterdir()}
        except FileNotFoundError:
            return []
        return sorted(filter(_TOKEN.fullmatch, names))


def _hide(directory: Path, hidden: Path) -> Path:
    """Hides a directory, durably, and returns where it then is."""
    try:
        directory.rename(hidden)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # An overlay, as of a container, renames no directory of the layers below. Without a manifest it is hidden, too.
        (directory / MANIFEST_NAME).unlink(missing_ok=True)
        fsync_directory(directory)
        return directory
    fsync_directory(directory.parent)
    return hidden


def _new_lock(area: Path) -> tuple[AliveLock, Path]:
    while True:
        path = area / f"{_new_token()}.lock"
        # A sweep may see the file before it is locked, take its owner for dead, and lock the file first.
        with contextlib.suppress(BlockingIOError):
            return AliveLock(path), path


def _new_token() -> str:
    return f"{this_machine()}-{uuid.uuid4().hex}"


def _is_abandoned(place: Path) -> bool:
    lock_path = place.with_name(f"{place.name}.lock")
    try:
        if is_alive(lock_path):
            return False
        return place.name.startswith(this_machine()) or _quiet_s(place, lock_path) > _FOREIGN_GRACE_S
    except OSError:
        return False  # another user's, or gone meanwhile


def _quiet_s(place: Path, lock_path: Path) -> float:
    """Returns the time since the lock, the directory or a file in it was last changed."""
    changes = [path.stat().st_mtime for path in (lock_path, place) if path.exists()]
    if place.is_dir() and not place.is_symlink():
        changes += [entry.stat(follow_symlinks=False).st_mtime for _, entry in walk(place)]
    return time.time() - max(changes, default=time.time())


def _sweep(place: Path) -> bool:
    lock_path = place.with_name(f"{place.name}.lock")
    try:
        # Held during the removal, so that no process can take the directory in between.
        lock = AliveLock(lock_path)
    except OSError:
        return False
    try:
        # The owner may have removed it since it was listed. Then only the lock is left, which we have just made.
        was_there = place.exists()
        remove_tree(place)
        is_gone = not place.exists()
        if is_gone:
            lock_path.unlink(missing_ok=True)
        return was_there and is_gone
    finally:
        lock.release()


def remove_tree(directory: Path) -> None:
    """Removes as much of the directory as it can. If it is a link, only the link is removed."""
    if directory.is_symlink():
        with contextlib.suppress(OSError):
            directory.unlink()
    else:
        shutil.rmtree(directory, ignore_errors=True)
        left: list[str] = []
        # Another rank that has the directory open may add files to it until it is gone.
        while os.path.lexists(directory) and left != (left := sorted(name for name, _ in walk(directory))):
            shutil.rmtree(directory, ignore_errors=True)
    if os.path.lexists(directory):
        logger.warning("%s cannot be removed entirely; it takes space until somebody may", directory)


def this_machine() -> str:
    """Returns an id of this machine, valid until its next boot.

    All containers of the machine have the same id, since they see each other's locks.
    """
    try:
        return _BOOT_ID.read_text().replace("-", "").strip()[:12]
    except FileNotFoundError:
        return f"{uuid.getnode():012x}"
