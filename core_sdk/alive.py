"""Whether the process that claimed something still lives, told by a lock that dies with it.

POSIX record locks belong to the process: a forked data-loader worker does not inherit them, a `kill -9` frees them, and
they work across hosts on shared file systems with a lock manager. A process loses such a lock when it closes *any*
descriptor of the file, hence the file serves nothing else and a process never opens one that it holds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

# A reader's question holds the lock for microseconds; an owner who meets one asks again.
_NUM_TRIES = 50
_PAUSE_S = 0.01

_held: set[tuple[int, int]] = set()
# Between the opening of a file and its entry above, no other thread may open it: its close would free the lock.
_guard = threading.Lock()


class AliveLock:
    """Held from construction to `release`, or to the process's end. `BlockingIOError` if it is held already.

    Whoever holds it may remove the file: the next one to ask makes a new file.
    """

    def __init__(self, path: Path) -> None:
        with _guard:
            self._descriptor = _open_and_lock(path)
            self._identity = _identity(os.fstat(self._descriptor))
            _held.add(self._identity)

    def release(self) -> None:
        """Does nothing the second time."""
        with _guard:
            if self._descriptor >= 0:
                _held.discard(self._identity)
                os.close(self._descriptor)
                self._descriptor = -1


def is_alive(path: Path) -> bool:
    """Whether some living process holds the `AliveLock` at `path`."""
    with _guard:
        if _identity_at(path) in _held:
            return True
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def _open_and_lock(path: Path) -> int:
    while True:
        if _identity_at(path) in _held:
            raise BlockingIOError(errno.EAGAIN, "held by this process", str(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
            if _identity_at(path) == _identity(os.fstat(descriptor)):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        # The last holder removed the file while we waited: a lock on it would be seen by nobody.
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    for _ in range(_NUM_TRIES - 1):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_PAUSE_S)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _identity_at(path: Path) -> tuple[int, int] | None:
    try:
        return _identity(path.stat())
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _renew_guard_in_child() -> None:
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_renew_guard_in_child)
