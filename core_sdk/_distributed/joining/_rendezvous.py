"""The places through which the ranks of a group learn the address of their chief, and the key."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from core_sdk._ground.decoding import msgpack_decoder
from core_sdk._ground.files import write_atomically
from core_sdk.errors import ContradictoryRanksError, JoinError


class ChiefAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a chief, and the key of its group."""

    key: bytes
    host: str
    """The chief's host identity. Only ranks with the same one can use its Unix socket."""
    process: str
    unix_path: str | None = None
    tcp_hosts: list[str] = []
    tcp_port: int = 0


class Rendezvous(ABC):
    """A place, known to all ranks of a group from the start, where the chief leaves its address."""

    where: str
    """The name of the place, for messages."""

    def publish(self, address: ChiefAddress) -> None:  # noqa: B027 - some ranks know the address without
        """Publishes the chief's address (chief only). Raises `ContradictoryRanksError` if there is another chief."""

    def insist(self) -> None:  # noqa: B027 - most have no second place
        """May publish the address at a second place. The chief calls it repeatedly while ranks are missing."""

    @abstractmethod
    def look(self) -> ChiefAddress | None:
        """Returns the published address, or None if there is none (members only). Most implementations do not block."""

    def withdraw(self) -> None:  # noqa: B027 - most leave nothing behind
        """Removes the published address when joining has ended (chief only). Later looks belong to a later group."""


class DirectoryRendezvous(Rendezvous):
    """A directory that only this user can enter."""

    def __init__(self, directory: Path, *, is_ours: bool = False) -> None:
        """`is_ours` says that `withdraw` removes the directory."""
        self.where = f"the directory {directory}"
        self._directory = directory
        self._is_ours = is_ours
        self._path = directory / "chief"
        self._lock_path = directory / "lock"
        self._lock: int | None = None

    def publish(self, address: ChiefAddress) -> None:
        with self._telling_of_failure():
            while self._lock is None:
                with contextlib.suppress(FileExistsError):
                    self._directory.mkdir(mode=0o700, parents=True)
                # If the chief of an earlier group is just removing the directory, it is made again.
                with contextlib.suppress(FileNotFoundError):
                    self._check_privacy()
                    self._lock = self._take_lock()
            write_atomically(self._path, msgspec.msgpack.encode(address))

    def look(self) -> ChiefAddress | None:
        with self._telling_of_failure():
            try:
                self._check_privacy()
                return msgpack_decoder(ChiefAddress)(self._path.read_bytes())
            except FileNotFoundError:
                return None

    def withdraw(self) -> None:
        if self._lock is None:
            return
        self._path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)
        if self._is_ours:
            with contextlib.suppress(OSError):  # another group is already using it
                self._directory.rmdir()
        os.close(self._lock)
        self._lock = None

    def _take_lock(self) -> int | None:
        """Returns the descriptor of the lock; None if the lock file was removed meanwhile.

        Raises `ContradictoryRanksError` if another chief holds the lock.
        """
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Not the lock of `alive.py`, since this one must also exclude another thread of this process.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), self._lock_path.stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            raise ContradictoryRanksError([f"another rank 0 is waiting for its ranks in {self.where}"]) from None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        return None

    @contextlib.contextmanager
    def _telling_of_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JoinError(f"the ranks cannot meet in {self._directory}: {error.strerror}.") from error

    def _check_privacy(self) -> None:
        status = self._directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise JoinError(
                f"{self._directory}, where the ranks were to meet, is not a directory that this user alone can enter. "
                "Remove it, or give it to this user with mode 0700, and start again."
            )


class KnownRendezvous(Rendezvous):
    """An address that the ranks have been told."""

    def __init__(self, where: str, address: ChiefAddress) -> None:
        self.where = where
        self.address = address

    def look(self) -> ChiefAddress:
        return self.address


class BroadcastRendezvous(Rendezvous):
    """Sends the address by a collective call of another library. `publish()` and the first `look()` make that call."""

    def __init__(self, where: str, broadcast: Callable[[ChiefAddress | None], ChiefAddress]) -> None:
        self.where = where
        self._broadcast = broadcast
        self._found: ChiefAddress | None = None

    def publish(self, address: ChiefAddress) -> None:
        self._broadcast(address)

    def look(self) -> ChiefAddress:
        if self._found is None:
            self._found = self._broadcast(None)
        return self._found


def own_addresses() -> list[str]:
    """Returns this host's name, and the addresses by which other hosts may reach it."""
    import psutil  # only for ranks on several nodes

    entries = [entry for interface in psutil.net_if_addrs().values() for entry in interface]
    addresses = [entry.address for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)]
    return [socket.gethostname(), *(each for each in addresses if not each.startswith("127.") and each != "::1")]
