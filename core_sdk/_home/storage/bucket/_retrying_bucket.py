"""A bucket's small objects, with retries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from core_sdk._home.storage.bucket._bucket import (
    Bucket,
    ObjectExistsError,
    ObjectMissingError,
    StoredObject,
    TransientError,
)
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._retry import Retry
from core_sdk._home.storage.bucket.transfer._threads import run_in_threads

T = TypeVar("T")

TOMBSTONE = b""
"""Takes the place of a manifest, so that no checkpoint with this id can come to exist."""

_CLEANING_S = 5.0

# Twice the size of a manifest of a million files.
_MAX_BYTES = 512 << 20


class OversizedError(Exception):
    """An object is larger than any that we write."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"has {size_bytes:,} bytes, more than any of ours")


class RetryingBucket:
    """Reads and writes small objects with retries. Each call raises `StorageError` if the retries do not help."""

    def __init__(self, bucket: Bucket, limits: Limits, retry: Retry | None = None) -> None:
        self._bucket = bucket
        self._limits = limits
        self._retry = retry or Retry(limits.deadline_s)

    @property
    def briefly(self) -> RetryingBucket:
        """The same bucket for cleaning up, with retries for 5 s only: what is left then, a sweep removes."""
        return RetryingBucket(self._bucket, self._limits, Retry(min(_CLEANING_S, self._limits.deadline_s)))

    def where(self, name: str) -> str:
        return self._bucket.where(name)

    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        """Stores an object, and raises `ObjectExistsError` as `Bucket.put` does.

        With `if_absent` that error may also mean that an earlier try has stored the object, and its answer was lost.
        """
        self._call(name, partial(self._bucket.put, name, content, if_absent=if_absent, if_version=if_version))

    def read(self, name: str) -> bytes:
        """Returns the content of a small object. Raises `ObjectMissingError`, `OversizedError`."""
        return self.read_version(name)[0]

    def read_version(self, name: str) -> tuple[bytes, str]:
        return self._call(name, partial(self._read, name))

    def stat(self, name: str) -> StoredObject:
        """Returns what the store says about an object. Raises `ObjectMissingError`."""
        return self._call(name, partial(self._bucket.stat, name))

    def all_under(self, under: str) -> list[StoredObject]:
        return self._call(under, lambda: list(self._bucket.list(under)))

    def remove(self, name: str) -> None:
        self._call(name, partial(self._bucket.delete, name))

    def remove_all(self, names: Iterable[str]) -> None:
        """Removes objects, many at once; some may be gone already."""
        run_in_threads([partial(self.remove, name) for name in names], self._limits.num_threads, threading.Event())

    def abort_uploads(self, under: str) -> int:
        return self._call(under, partial(self._bucket.abort_uploads, under))

    def put_tombstone(self, name: str) -> bool:
        """Puts a tombstone in the place of a manifest. Returns False if a manifest is there already.

        Looks for a manifest first, since some stores do not know preconditions.
        """
        try:
            return self.stat(name).size_bytes == len(TOMBSTONE)
        except ObjectMissingError:
            pass
        try:
            self.put(name, TOMBSTONE, if_absent=True)
        except ObjectExistsError:
            return self.stat(name).size_bytes == len(TOMBSTONE)
        return True

    def _read(self, name: str) -> tuple[bytes, str]:
        found = self._bucket.stat(name)
        if found.size_bytes > _MAX_BYTES:
            raise OversizedError(found.size_bytes)
        content = bytearray()
        try:
            if found.size_bytes:
                self._bucket.read(name, 0, found.size_bytes, content.extend)
        except ObjectMissingError:
            self._bucket.stat(name)  # raises `ObjectMissingError` if it is gone
            raise TransientError("the object was replaced while it was read") from None
        return bytes(content), found.version

    def _call(self, name: str, work: Callable[[], T]) -> T:
        return self._retry.call(self._bucket.where(name), work)
