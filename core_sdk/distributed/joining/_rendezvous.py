"""Where the ranks of a group learn how to reach their chief, and the key: through something that is there already."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import msgspec

from core_sdk.errors import ContradictoryRanksError, JoinError
from core_sdk.files import write_atomically


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a chief."""

    key: bytes
    host: str
    """The chief's host identity: its Unix socket is for ranks that have the same."""
    process: str
    unix_path: str | None = None
    tcp_hosts: list[str] = []
    tcp_port: int = 0


class Rendezvous(ABC):
    """A place that all ranks of a group know from the start."""

    where: str
    """For messages."""

    @abstractmethod
    def publish(self, address: Address) -> None:
        """On the chief. Raises `ContradictoryRanksError` if another process is chief here."""

    def insist(self) -> None:  # noqa: B027 - most have no more to do
        """On the chief, again and again while ranks are missing: may publish at a second place."""

    @abstractmethod
    def look(self) -> Address | None:
        """On the others, without waiting: None while nothing has been published."""

    @abstractmethod
    def withdraw(self) -> None:
        """On the chief, once all have come: whoever looks now belongs to a later group."""


class DirectoryRendezvous(Rendezvous):
    """A directory that only this user can enter."""

    def __init__(self, directory: Path, *, is_ours: bool = False) -> None:
        """One that `is_ours` is removed when all have come."""
        self.where = f"the directory {directory}"
        self._directory = directory
        self._is_ours = is_ours
        self._path = directory / "chief"
        self._lock_path = directory / "lock"
        self._lock: int | None = None

    def publish(self, address: Address) -> None:
        with self._telling_of_failure():
            while self._lock is None:
                with contextlib.suppress(FileExistsError):
                    self._directory.mkdir(mode=0o700, parents=True)
                # The chief of an earlier group may be removing it just now: then it is made again.
                with contextlib.suppress(FileNotFoundError):
                    self._check_privacy()
                    self._lock = self._take_lock()
            write_atomically(self._path, msgspec.msgpack.encode(address))

    def look(self) -> Address | None:
        with self._telling_of_failure():
            try:
                self._check_privacy()
                return msgspec.msgpack.decode(self._path.read_bytes(), type=Address)
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
        """None if its file was removed meanwhile."""
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Not the lock of `alive.py`: two threads of a process may be chiefs here, and only one at a time.
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


class FixedRendezvous(Rendezvous):
    """An address and a key that every rank was given."""

    def __init__(self, host: str, port: int, key: bytes) -> None:
        self.where = f"{host}:{port}"
        self.address = Address(key=key, host="", process="the chief", tcp_hosts=[host], tcp_port=port)

    def publish(self, address: Address) -> None:
        pass

    def look(self) -> Address:
        return self.address

    def withdraw(self) -> None:
        pass


class GatheredRendezvous(Rendezvous):
    """The ranks of a node, whose chief's address has come through the group of all ranks."""

    def __init__(self, address: Address) -> None:
        self.where = "the group of all ranks"
        self._address = address

    def publish(self, address: Address) -> None:
        pass

    def look(self) -> Address:
        return self._address

    def withdraw(self) -> None:
        pass


def own_addresses() -> list[str]:
    """This host's names and addresses that other hosts may reach, most likely first."""
    import psutil  # only for ranks on several nodes

    addresses = [socket.gethostname()]
    for interface in psutil.net_if_addrs().values():
        for entry in interface:
            if entry.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(entry.address):
                addresses.append(entry.address)
    return addresses


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
