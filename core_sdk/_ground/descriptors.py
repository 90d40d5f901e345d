"""Descriptors that stay open for long in a process whose code is not ours.

A script may close descriptors that it does not know: what makes a daemon of a process calls `os.closerange(3, 64)`. The
script's own next files then get these numbers. So our descriptors stand high, where the system puts a file only if a
script has hundreds open, and each knows the device and inode of its file. What would change a file, lock it or close it
compares them first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
from pathlib import Path

# Below FD_SETSIZE, so that `select` still takes them.
_LOWEST = 512


class KeptDescriptor:
    """A descriptor that this process keeps open, and tells from a file of the script's that has taken its number."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor over: it is closed, and its file gets a higher number."""
        self._number = moved_up(descriptor)
        self._status = os.fstat(self._number)

    def fileno(self) -> int:
        """Returns the number, unchecked; -1 after `close`."""
        return self._number

    def is_ours(self) -> bool:
        """Returns whether the number still belongs to the file."""
        try:
            return self._number >= 0 and os.path.samestat(self._status, os.fstat(self._number))
        except OSError:
            return False

    def checked(self) -> int:
        """Returns the number if it still belongs to the file. Otherwise raises `OSError`."""
        if not self.is_ours():
            raise OSError(errno.EBADF, "the script has closed a descriptor that it had not opened")
        return self._number

    def is_at(self, path: Path) -> bool:
        """Returns whether `path` leads to the file. If the file system does not answer, it counts as leading there."""
        try:
            return os.path.samestat(self._status, path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def open_again(self, path: Path, flags: int) -> None:
        """Opens the file again after the script has closed it. Raises `OSError` if `path` leads to another file."""
        again = KeptDescriptor(os.open(path, flags | os.O_CLOEXEC))
        if not os.path.samestat(self._status, again._status):
            again.close()
            raise FileNotFoundError(errno.ENOENT, "it was replaced while the training ran", str(path))
        self._number = again._number

    def close(self) -> None:
        """Closes the descriptor, unless its number belongs to another file. Does nothing the second time."""
        if self.is_ours():
            os.close(self._number)
        self._number = -1


def moved_up(descriptor: int) -> int:
    """Closes the descriptor, and returns another one of the same file that stands high."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = _LOWEST if limit == resource.RLIM_INFINITY else min(_LOWEST, limit // 2)
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    finally:
        os.close(descriptor)


def moved_up_socket(sock: socket.socket) -> socket.socket:
    """Closes the socket, and returns another one of the same connection whose descriptor stands high."""
    timeout_s = sock.gettimeout()
    moved = socket.socket(sock.family, sock.type, sock.proto, moved_up(sock.detach()))
    moved.settimeout(timeout_s)
    return moved
