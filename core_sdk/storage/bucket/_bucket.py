"""The seam between checkpoints and the object stores that keep them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from core_sdk.records import FileEntry

Sink = Callable[[bytes], None]
"""Takes the next bytes of an object."""


class TransientError(Exception):
    """A failure that may pass by itself: a dropped connection, 429, 5xx, an answer that is not the store's.

    `reason` goes into messages: it must hold no secret.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        """How long the store asked to wait, if it did."""


class ObjectMissingError(Exception):
    """There is no object of this name."""


class ObjectExistsError(Exception):
    """The object was there already, or is another version than was expected."""


@dataclass(frozen=True)
class StoredObject:
    name: str
    """Relative to the bucket's prefix."""
    size_bytes: int
    updated: float
    """When it was written, in seconds since the epoch by the store's clock."""
    version: str
    """Differs whenever the content does: a generation, an ETag."""
    crc32c: str | None = None
    """As in `FileEntry`, where the store tells it without being asked for each object."""


class PartedUpload(ABC):
    """A large object that travels in parts, in parallel. It appears whole, on `complete`, or not at all."""

    def __init__(self, size_bytes: int, part_bytes: int) -> None:
        """All parts but the last have `part_bytes`."""
        self.part_bytes = part_bytes
        self.num_parts = -(-size_bytes // part_bytes)

    @abstractmethod
    def put_part(self, index: int, content: bytes) -> None:
        """Sends part `index`, from 0; safe in threads, and to be repeated. The store checks what arrives."""

    @abstractmethod
    def complete(self) -> None:
        """Makes the object exist, once all parts are there. Safe to be repeated where the answer was lost."""

    @abstractmethod
    def abort(self) -> None:
        """Removes the parts. Does nothing after `complete`."""


def part_bytes(size_bytes: int, most_parts: int, least: int = 16 << 20) -> int:
    """How large to make the parts of an object: `least`, or whole MiB more where `most_parts` would not do."""
    return max(least, -(-size_bytes // (most_parts << 20)) << 20)


class Bucket(ABC):
    """The objects under one prefix of one bucket; their names are relative to the prefix. Safe in threads.

    No method tries again: that is `Retry`'s. Each raises `TransientError` for what may pass by itself, and for what
    will not `BucketNotFoundError`, `CredentialsMissingError`, `CredentialsRejectedError`, or `StoragePermissionError`
    naming the object and the permission. No message holds a secret.

    Where a method says so, `ObjectMissingError` or `ObjectExistsError`.
    """

    url: str
    """Names bucket and prefix so that another process can open them; without credentials."""

    def where(self, name: str) -> str:
        """The object, or with "" the prefix itself, as a person knows it: gs://bucket/prefix/name."""
        return f"{self.url.partition('?')[0].rstrip('/')}/{name}".rstrip("/")

    @abstractmethod
    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        """Stores a small object. The store compares its checksum with ours: `TransientError` if they differ.

        With `if_absent` or `if_version` only if there is none yet, or this one: `ObjectExistsError`. A store that does
        not know preconditions ignores them.
        """

    @abstractmethod
    def begin(self, name: str, entry: FileEntry) -> PartedUpload:
        """Begins a large object, of the size and checksum of `entry`; it replaces one of the same name."""

    @abstractmethod
    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        """Hands `size_bytes` > 0 bytes from `start` on to `sink`, in pieces of at most 1 MiB, as they arrive.

        Raises `ObjectMissingError`, also where the object is shorter. An answer that is not this range, of this
        object, is a `TransientError`. Some bytes may have been handed on before an error.
        """

    @abstractmethod
    def stat(self, name: str) -> StoredObject:
        """Raises `ObjectMissingError`."""

    @abstractmethod
    def list(self, under: str = "") -> Iterator[StoredObject]:
        """All objects whose names begin with `under`, in the order of their names, page by page."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes an object, if it is there."""

    @abstractmethod
    def copy(self, source: str, target: str, entry: FileEntry) -> StoredObject:
        """Copies an object within the store, any size; no byte of it passes through here.

        Raises `ObjectMissingError` if there is no source. The caller compares what it gives with `entry`.
        """

    @abstractmethod
    def abort_uploads(self, under: str) -> int:
        """Removes the parts of all uploads to names that begin with `under`, and returns the number of uploads."""

    @abstractmethod
    def close(self) -> None:
        """Closes connections; does nothing the second time."""
