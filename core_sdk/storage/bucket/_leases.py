"""Who is writing or removing what: objects beside the checkpoints, by which the remains of dead processes are found.

A bucket has no locks. On the machine that made a claim its owner's life is told by a lock file; elsewhere a claim
counts as abandoned once it was not renewed for an hour by the store's clock. Who was only slow finds its manifest's
name taken, and fails: see `Sweep`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from core_sdk.alive import is_alive
from core_sdk.errors import StorageError, UnsafePathError
from core_sdk.storage._names import check_storage_id
from core_sdk.storage._staging_area import this_machine
from core_sdk.storage.bucket._bucket import Bucket, ObjectMissingError, StoredObject
from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._retry import Retry

logger = logging.getLogger("core_sdk.storage")

T = TypeVar("T")

LEASES = ".claims/"
_CLOCK = f"{LEASES}clock"
_MAX_BYTES = 65_536


class LeaseRecord(msgspec.Struct, kw_only=True, frozen=True):
    """What a claim says."""

    format: int = 1
    storage_id: str
    machine: str
    """Of one start of one machine."""
    lock: str
    """The path of the file, on that machine, that the owner holds locked."""
    host: str
    pid: int
    """The last two for people only."""


class LeaseLostError(Exception):
    """A claim could not be renewed in time: others may take it for abandoned."""


class Lease:
    """Held from construction to `release`, and renewed in between by a thread of its own."""

    def __init__(self, bucket: Bucket, limits: Limits, storage_id: str, lock_path: Path) -> None:
        self._bucket = bucket
        self._limits = limits
        self._name = f"{LEASES}{uuid.uuid4().hex}"
        self._content = msgspec.json.encode(
            LeaseRecord(
                storage_id=storage_id,
                machine=this_machine(),
                lock=str(lock_path),
                host=socket.gethostname(),
                pid=os.getpid(),
            )
        )
        self._process = os.getpid()
        self._is_released = False
        self._stop_renewing = threading.Event()
        self._renewed = 0.0
        self._write()
        self._renewal = threading.Thread(target=self._renew, name="core-sdk-lease", daemon=True)
        self._renewal.start()

    def check(self) -> None:
        """Raises `LeaseLostError` if somebody may have taken the claim for abandoned, or soon will."""
        # Half the lease is left for the request that relies on it.
        if _now_s() - self._renewed > self._limits.lease_s / 2:
            raise LeaseLostError

    def release(self) -> None:
        """Removes it; does nothing the second time, and in a forked child."""
        self.abandon()
        if os.getpid() == self._process and not self._is_released:
            self._is_released = True
            self._call(lambda: self._bucket.delete(self._name))

    def abandon(self) -> None:
        """Leaves it to the next sweep."""
        self._stop_renewing.set()

    def _write(self) -> None:
        began = _now_s()
        self._call(lambda: self._bucket.put(self._name, self._content))
        self._renewed = began

    def _renew(self) -> None:
        while not self._stop_renewing.wait(self._limits.lease_s / 8):
            try:
                self._write()
            except StorageError as error:
                logger.warning("a claim in %s could not be renewed: %s", self._bucket.where(""), error)

    def _call(self, work: Callable[[], None]) -> None:
        Retry(self._limits.deadline_s).call(self._bucket.where(self._name), work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if exc_val is None:
            self.release()
        else:
            self.abandon()


class Leases:
    """All that are in a bucket."""

    def __init__(self, bucket: Bucket, limits: Limits) -> None:
        self._bucket = bucket
        self._limits = limits
        self._retry = Retry(limits.deadline_s)

    def abandoned(self) -> list[tuple[StoredObject, LeaseRecord]]:
        """Those whose owners are dead, or were not heard of for so long that they count as dead."""
        leases = self._call(lambda: list(self._bucket.list(LEASES)))
        read = [(lease, record) for lease in leases if (record := self._read(lease)) is not None]
        if not any(_is_elsewhere(record) for _, record in read):
            return [(lease, record) for lease, record in read if not _is_alive_here(record)]
        now = self.now()
        return [(lease, record) for lease, record in read if self._is_abandoned(lease, record, now)]

    def now(self) -> float:
        """The store's time: only its own clock tells how old an object is."""
        self._call(lambda: self._bucket.put(_CLOCK, b"{}"))
        return self._call(lambda: self._bucket.stat(_CLOCK)).updated

    def remove(self, name: str) -> None:
        self._call(lambda: self._bucket.delete(name))

    def _is_abandoned(self, lease: StoredObject, record: LeaseRecord, now: float) -> bool:
        if _is_elsewhere(record):
            return now - lease.updated > self._limits.lease_s
        return not _is_alive_here(record)

    def _read(self, lease: StoredObject) -> LeaseRecord | None:
        """None for what is no claim, or is gone."""
        content = bytearray()
        if not 0 < lease.size_bytes <= _MAX_BYTES:
            return None
        try:
            self._call(lambda: self._read_into(lease, content))
            record = msgspec.json.decode(content, type=LeaseRecord)
            check_storage_id(record.storage_id)
        except (ObjectMissingError, msgspec.DecodeError, UnicodeDecodeError, UnsafePathError):
            return None
        return record

    def _read_into(self, lease: StoredObject, content: bytearray) -> None:
        content.clear()
        self._bucket.read(lease.name, 0, lease.size_bytes, content.extend)

    def _call(self, work: Callable[[], T]) -> T:
        return self._retry.call(self._bucket.where(LEASES), work)


def _is_elsewhere(record: LeaseRecord) -> bool:
    """On another machine, or where its files are not seen: in another container, say."""
    return record.machine != this_machine() or not _is_readable_file(record.lock)


def _is_readable_file(path: str) -> bool:
    """Not one that is another user's, nor a pipe, which would be waited for."""
    try:
        return Path(path).is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def _is_alive_here(record: LeaseRecord) -> bool:
    return _is_elsewhere(record) or is_alive(Path(record.lock))


def _now_s() -> float:
    """A clock that also counts the time in which the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
