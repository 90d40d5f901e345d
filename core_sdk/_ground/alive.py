"""Locks that tell whether the process that holds them still lives, and plainer ones that processes wait for.

The former kind belongs to an *open file description* (`F_OFD_SETLK`). A `kill -9` frees it, and it works across hosts
on shared file systems with a lock manager. Python has no function for it, so that its argument is packed here. Other
locks do less: a lock by `fcntl.lockf` is lost when the process opens and closes the file elsewhere, as a backup of the
home does; `fcntl.flock`, which filelock uses, can only tell whether a lock is held by taking it, so that a trial would
be refused because somebody lists trials at that moment. Systems other than Linux have nothing better than `flock`.

A forked child has the same open file, and would keep the lock of its dead parent: it closes the file at once. Only C
code that forks without exec escapes that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._ground.ownership import give_to_owner_of

# C's `struct flock`: type, whence, start, length (0: all) and pid, which must be 0.
_FLOCK = struct.Struct("hhqqi0q")

_PAUSE_S = 0.01

_held: set[AliveLock] = set()
# Keeps other threads from forking between opening a file and entering it above. Reentrant, for signal handlers.
_guard = threading.RLock()


class AliveLock:
    """A lock that is held from construction to `release()`, or to the end of the process.

    Raises `BlockingIOError` if it is held already. The holder may remove the file: the next holder makes a new one.
    """

    def __init__(self, path: Path) -> None:
        with _guard:
            self._path: Path | None = path
            self._file = KeptDescriptor(_open_and_lock(path))
            _held.add(self)

    @classmethod
    def shared(cls, path: Path) -> AliveLock:
        """Locks an existing file that is only read, together with others who do so.

        Raises `BlockingIOError` if somebody holds it alone, and `FileNotFoundError`.
        """
        with _guard:
            return cls.adopt(_open_and_lock(path, os.O_RDONLY, is_shared=True))

    @classmethod
    def alone(cls, path: Path) -> AliveLock:
        """Locks an existing file. Raises `BlockingIOError` if anybody holds it, and `FileNotFoundError`."""
        with _guard:
            return cls.adopt(_open_and_lock(path, os.O_RDWR))

    @classmethod
    def adopt(cls, descriptor: int) -> AliveLock:
        """Returns the lock of another process that has sent this descriptor. Both share it until one releases it."""
        lock = cls.__new__(cls)
        with _guard:
            lock._path = None
            lock._file = KeptDescriptor(descriptor)
            _held.add(lock)
        return lock

    def sign(self) -> None:
        """Writes into the file that this process is the holder."""
        os.pwrite(self._file.checked(), b"%-20d\n" % os.getpid(), 0)

    def is_at(self, path: Path) -> bool:
        """Returns whether this is still the lock of that path. Somebody may have removed its file."""
        return self._file.is_at(path)

    def fileno(self) -> int:
        return self._file.fileno()

    def take_again(self) -> None:
        """Takes the lock again if the script has closed its descriptor, unless another process has it by now."""
        with _guard:
            if self._path is not None and self._file.fileno() >= 0 and not self._file.is_ours():
                with contextlib.suppress(OSError):
                    self._file.open_again(self._path, os.O_RDWR)
                    _lock(self._file.fileno(), is_shared=False)

    def leave(self) -> None:
        """Closes the lock in this process only. A process that has adopted it still holds it."""
        with _guard:
            if self._file.fileno() >= 0:
                self._close()

    def release(self) -> None:
        """Releases the lock. Does nothing the second time, and in a forked child."""
        with _guard:
            if self._file.fileno() >= 0:
                # Some network file systems notice the unlocking, but not the closing.
                with contextlib.suppress(OSError):
                    _unlock(self._file.checked())
                self._close()

    def _close(self) -> None:
        _held.discard(self)
        self._file.close()


def once_free(take: Callable[[], AliveLock], within_s: float) -> AliveLock:
    """Takes a lock once its holder has released it. Raises `BlockingIOError` if that takes longer than `within_s`."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return take()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def is_alive(path: Path) -> bool:
    """Returns whether a living process holds the `AliveLock` at `path`; as far as can be told, if it is somebody's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return is_perhaps_alive(path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a socket, which nobody holds
            return False
        raise
    try:
        with _naming_lack_of_locks(path):
            return _is_locked(descriptor)
    finally:
        os.close(descriptor)


def is_perhaps_alive(path: Path) -> bool:
    """Returns whether a process may hold the `AliveLock` at a path that this user cannot open.

    The kernel lists all locks, by numbers that files of different file systems may share.
    """
    try:
        inode, locks = str(path.lstat().st_ino), Path("/proc/locks").read_text().split()
    except FileNotFoundError:
        return path.exists()
    return any(place.rpartition(":")[2] == inode for place in locks if ":" in place)


def signed_by(path: Path) -> int | None:
    """Returns the pid of the last holder that called `sign`, or None. It may have ended, or live on another host."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return int(file.read() or 0) or None
    except (FileNotFoundError, ValueError):
        return None


@contextlib.contextmanager
def file_lock(path: Path, timeout_s: float = -1) -> Iterator[None]:
    """Holds the lock at `path`, for which other processes wait, for the length of the block.

    Raises `filelock.Timeout` after the timeout, which is endless if it is negative, and `OSError` if the file cannot be
    made: filelock alone would make missing directories, and so bring back a home that was moved or removed.
    """
    from filelock import FileLock  # imports asyncio, which a training script need not pay for

    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_to_owner_of(path.parent, path, descriptor)
        os.close(descriptor)
    lock = FileLock(path, timeout=timeout_s, mode=0o600)
    with _naming_lack_of_locks(path):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _naming_lack_of_locks(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
        words = (
            "its file system gives no locks (No locks available): mount it with locks (NFS without `nolock`, Lustre "
            "with `flock`), or choose a directory on another one"
        )
        raise OSError(errno.ENOLCK, words, str(path)) from error


def _open_and_lock(path: Path, flags: int = os.O_RDWR | os.O_CREAT, *, is_shared: bool = False) -> int:
    while True:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            if flags & os.O_CREAT:
                give_to_owner_of(path.parent, path, descriptor)
            with _naming_lack_of_locks(path):
                _lock(descriptor, is_shared)
            if _is_file_at(path, descriptor):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        # The last holder has just removed the file, so nobody would see a lock on it.
        os.close(descriptor)


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "linux":

    def _lock(descriptor: int, is_shared: bool) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_RDLCK if is_shared else fcntl.F_WRLCK))

    def _unlock(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))

    def _is_locked(descriptor: int) -> bool:
        answer: int = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_RDLCK)))[0]
        return answer != fcntl.F_UNLCK

    def _flock(kind: int) -> bytes:
        return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)

else:

    def _lock(descriptor: int, is_shared: bool) -> None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _is_locked(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _let_go_in_child() -> None:
    # The locks are only closed, since unlocking would release the parent's locks, too.
    for lock in list(_held):
        lock._close()
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_let_go_in_child)
