"""Leases: objects next to the checkpoints that say who is writing, reading or removing what.

A bucket has no locks. On the machine that took a lease, a lock file tells whether its owner is alive. On other machines
a lease counts as abandoned if it has not been renewed for an hour by the store's clock. If its owner was only slow, it
finds the name of its manifest taken, and fails: see `sweep`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from pathlib import Path

import msgspec

from core_sdk._ground.alive import is_alive
from core_sdk._ground.decoding import json_decoder
from core_sdk._home.storage._names import check_storage_id
from core_sdk._home.storage._staging_area import this_machine
from core_sdk._home.storage.bucket._bucket import ObjectMissingError, StoredObject
from core_sdk._home.storage.bucket._retrying_bucket import OversizedError, RetryingBucket
from core_sdk.errors import StorageError, UnsafePathError

logger = logging.getLogger("core_sdk.storage")

LEASES = ".leases/"
# The leases of 0.1.0, which count and are swept, too.
_EARLIER_LEASES = ".claims/"
_CLOCK = f"{LEASES}clock"
_MAX_BYTES = 65_536


class LeaseRecord(msgspec.Struct, kw_only=True, frozen=True):
    """The content of a lease."""

    format: int = 1
    storage_id: str
    machine: str
    """The id of the machine, which changes with each boot."""
    lock: str
    """The path, on that machine, of the file that the owner keeps locked."""
    host: str
    """The name of the machine. It is for people only, like `pid`."""
    pid: int


class LeaseLostError(Exception):
    """A lease could not be renewed in time: others may take it for abandoned."""


class Lease:
    """A lease that is held from construction to `release`; a thread of its own renews it.

    As a context manager it is released after a success, and abandoned after an error.
    """

    def __init__(self, objects: RetryingBucket, lease_s: float, storage_id: str, lock_path: Path) -> None:
        self._objects = objects
        self._lease_s = lease_s
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
        threading.Thread(target=self._renew, name="core-sdk-lease", daemon=True).start()

    def check(self) -> None:
        """Raises `LeaseLostError` if another process may take the lease for abandoned, now or soon."""
        # Half the lease is left for the request that relies on it.
        if _now_s() - self._renewed > self._lease_s / 2:
            raise LeaseLostError

    def release(self, objects: RetryingBucket | None = None) -> None:
        """Removes the lease. Does nothing the second time, and in a forked child."""
        self.abandon()
        if os.getpid() == self._process and not self._is_released:
            self._is_released = True
            (objects or self._objects).remove(self._name)

    def end(self) -> None:
        """Removes the lease. If the store does not let it go within seconds, the next sweep removes it."""
        try:
            self.release(self._objects.briefly)
        except StorageError as error:
            logger.warning("a lease in %s stays until it is swept: %s", self._objects.where(""), error)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self.release()
        self.abandon()

    def abandon(self) -> None:
        """Stops renewing the lease, and leaves it to the next sweep."""
        self._stop_renewing.set()

    def _write(self) -> None:
        began = _now_s()
        self._objects.put(self._name, self._content)
        self._renewed = began

    def _renew(self) -> None:
        while not self._stop_renewing.wait(self._lease_s / 8):
            try:
                self._write()
            except StorageError as error:
                logger.warning("a lease in %s could not be renewed: %s", self._objects.where(""), error)


def is_leased(objects: RetryingBucket, lease_s: float, storage_id: str) -> bool:
    """Returns whether a living process holds a lease for this checkpoint."""
    leases = _leases(objects, lease_s)
    return any(record.storage_id == storage_id and not is_abandoned for _, record, is_abandoned in leases)


def abandoned_leases(objects: RetryingBucket, lease_s: float) -> list[tuple[StoredObject, LeaseRecord]]:
    """Returns the leases whose owners are dead, or have not renewed them for `lease_s`."""
    return [(lease, record) for lease, record, is_abandoned in _leases(objects, lease_s) if is_abandoned]


def _leases(objects: RetryingBucket, lease_s: float) -> list[tuple[StoredObject, LeaseRecord, bool]]:
    """Returns all leases, and whether each is abandoned."""
    found = (lease for folder in (LEASES, _EARLIER_LEASES) for lease in objects.all_under(folder))
    leases = [(lease, record) for lease in found if (record := _read(objects, lease)) is not None]
    now = store_time(objects) if any(_is_elsewhere(record) for _, record in leases) else 0.0
    return [(lease, record, _is_abandoned(lease, record, lease_s, now)) for lease, record in leases]


def store_time(objects: RetryingBucket) -> float:
    """Returns the time by the store's clock, by which the ages of objects are measured."""
    objects.put(_CLOCK, b"{}")
    return objects.stat(_CLOCK).updated


def _is_abandoned(lease: StoredObject, record: LeaseRecord, lease_s: float, now: float) -> bool:
    if _is_elsewhere(record):
        return now - lease.updated > lease_s
    return not is_alive(Path(record.lock))


def _read(objects: RetryingBucket, lease: StoredObject) -> LeaseRecord | None:
    """Reads a lease. Returns None for an object that is not a lease, or no longer exists."""
    if not 0 < lease.size_bytes <= _MAX_BYTES:
        return None
    try:
        record = json_decoder(LeaseRecord)(objects.read(lease.name))
        check_storage_id(record.storage_id)
    except (ObjectMissingError, OversizedError, msgspec.DecodeError, UnicodeDecodeError, UnsafePathError):
        return None
    return record


def _is_elsewhere(record: LeaseRecord) -> bool:
    """Returns whether its lock is out of reach: on another machine, in another container, or of another user."""
    try:
        can_ask = Path(record.lock).is_file() and os.access(record.lock, os.R_OK)
    except (OSError, ValueError):
        can_ask = False
    return record.machine != this_machine() or not can_ask


def _now_s() -> float:
    """Reads a clock that also counts the time in which the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
