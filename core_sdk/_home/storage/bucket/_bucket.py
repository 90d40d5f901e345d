"""The seam between checkpoints and the object stores that keep them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from core_sdk._ground.records import FileEntry

Sink = Callable[[bytes], None]
"""A function that takes the next bytes of an object."""


class TransientError(Exception):
    """A failure that may pass by itself: a dropped connection, 429, 5xx, an answer that is not the store's.

    `reason` goes into messages: it must hold no secret.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        """The time for which the store asked to wait, or None."""


class ObjectMissingError(Exception):
    """The bucket has no object of this name."""


class ObjectExistsError(Exception):
    """The object exists already, or its version is not the expected one."""


@dataclass(frozen=True)
class StoredObject:
    name: str
    """Relative to the bucket's prefix."""
    size_bytes: int
    updated: float
    """The time at which it was written, in seconds since the epoch by the store's clock."""
    version: str
    """Differs whenever the content does: a generation, an ETag."""
    crc32c: str | None = None
    """The checksum as in `FileEntry`, where the store tells it without being asked for each object."""


class PartedUpload(ABC):
    """The upload of a large object in parallel parts. The object appears whole, on `complete`, or not at all."""

    def __init__(self, size_bytes: int, part_bytes: int) -> None:
        """Divides the object into parts of `part_bytes`; the last part may be smaller."""
        self.part_bytes = part_bytes
        self.num_parts = -(-size_bytes // part_bytes)
        self._is_complete = False

    @abstractmethod
    def put_part(self, index: int, content: bytes) -> None:
        """Sends part `index`, counted from 0. Safe in threads, and safe to repeat. The store checks what arrives.

        Raises `ObjectMissingError`, as `complete` does, if the store has dropped the upload with all its parts.
        """

    def complete(self) -> None:
        """Makes the object exist, after all parts have arrived. Safe to repeat if the answer was lost."""
        if not self._is_complete:
            self._complete()
            self._is_complete = True

    def abort(self) -> None:
        """Removes the parts. Does nothing after `complete`."""
        if not self._is_complete:
            self._abort()

    @abstractmethod
    def _complete(self) -> None: ...

    @abstractmethod
    def _abort(self) -> None: ...


def part_bytes(size_bytes: int, most_parts: int, least: int = 16 << 20) -> int:
    """Returns the size of the parts of an object: `least`, or as many whole MiB as `most_parts` parts need."""
    return max(least, -(-size_bytes // (most_parts << 20)) << 20)


def hand_on(
    content_range: str | None, pieces: Iterable[bytes], start: int, size_bytes: int, where: str, sink: Sink
) -> None:
    """Passes the `pieces` of an answer on to `sink`, as `Bucket.read` does. `content_range` is its Content-Range."""
    extent, _, total = (content_range or "").partition("/")
    if total.isdigit() and int(total) < start + size_bytes:
        raise ObjectMissingError(where)
    if extent != f"bytes {start}-{start + size_bytes - 1}":
        raise TransientError("the answer is not the range that was asked for")
    num_bytes = 0
    for piece in pieces:
        num_bytes += len(piece)
        if num_bytes > size_bytes:
            break
        sink(piece)
    if num_bytes != size_bytes:
        raise TransientError(f"{num_bytes:,} bytes came of {size_bytes:,}")


class Bucket(ABC):
    """The objects under one prefix of one bucket; their names are relative to the prefix. Safe in threads.

    No method retries; `Retry` does. Each method raises `TransientError` for a failure that may pass by itself. For
    other failures it raises `BucketNotFoundError`, `CredentialsMissingError`, `CredentialsRejectedError`, or
    `StoragePermissionError`, which names the object and the permission. Some methods also raise `ObjectMissingError`
    or `ObjectExistsError`, and say so. No message holds a secret.
    """

    url: str
    """The address of bucket and prefix by which another process can open them; holds no credentials."""

    def where(self, name: str) -> str:
        """Returns the object's address for messages: gs://bucket/prefix/name. For "", it is the prefix's address."""
        return f"{self.url.partition('?')[0].rstrip('/')}/{name}".rstrip("/")

    @abstractmethod
    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        """Stores a small object. The store compares its checksum with ours: `TransientError` if they differ.

        With `if_absent`, raises `ObjectExistsError` if the object exists; with `if_version`, if it does not have this
        version. A store that does not know preconditions ignores them.
        """

    @abstractmethod
    def begin(self, name: str, entry: FileEntry) -> PartedUpload:
        """Begins the upload of a large object with the size and checksum of `entry`. Replaces an existing object."""

    @abstractmethod
    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        """Passes the `size_bytes` > 0 bytes from `start` on to `sink`, as they arrive, in pieces of at most 1 MiB.

        Raises `ObjectMissingError`, also if the object is too short, and `TransientError` for an answer with another
        range. Some bytes may have been passed on before an error.
        """

    @abstractmethod
    def stat(self, name: str) -> StoredObject:
        """Returns what the store says about an object. Raises `ObjectMissingError`."""

    @abstractmethod
    def list(self, under: str = "") -> Iterator[StoredObject]:
        """Yields all objects whose names begin with `under`, in the order of their names. Asks page by page."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes an object, if it is there."""

    @abstractmethod
    def abort_uploads(self, under: str) -> int:
        """Removes the parts of all uploads to names that begin with `under`, and returns the number of uploads."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections; does nothing the second time."""
