"""A bucket in memory: a sibling of the adapters, for tests of what is built on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import google_crc32c

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import (
    Bucket,
    ObjectExistsError,
    ObjectMissingError,
    PartedUpload,
    Sink,
    StoredObject,
)

_PIECE_BYTES = 1 << 20


@dataclass
class Store:
    """What several buckets, of several processes as it were, look at. `now` is its clock."""

    objects: dict[str, tuple[bytes, StoredObject]] = field(default_factory=dict)
    uploads: dict[int, str] = field(default_factory=dict)
    now: Callable[[], float] = time.time
    num_writes: int = 0


class MemoryBucket(Bucket):
    """`before` is called with each operation and the object's name, and may raise, or wait."""

    def __init__(
        self,
        store: Store | None = None,
        before: Callable[[str, str], None] = lambda operation, name: None,
        part_bytes: int = 1000,
    ) -> None:
        self.store = store or Store()
        self.url = f"gs://memory/{id(self.store)}"
        self.before = before
        self._part_bytes = part_bytes
        self._lock = threading.Lock()

    def put(self, name: str, content: bytes, *, if_absent: bool = False, if_version: str | None = None) -> None:
        self.before("put", name)
        with self._lock:
            found = self.store.objects.get(name)
            if (if_absent and found is not None) or (if_version and (found is None or found[1].version != if_version)):
                raise ObjectExistsError(name)
            self._write(name, content)

    def begin(self, name: str, entry: FileEntry) -> PartedUpload:
        self.before("begin", name)
        upload = _Upload(self, name, entry.size_bytes, self._part_bytes)
        self.store.uploads[id(upload)] = name
        return upload

    def read(self, name: str, start: int, size_bytes: int, sink: Sink) -> None:
        self.before("read", name)
        content = self._find(name)[0][start : start + size_bytes]
        if len(content) < size_bytes:
            raise ObjectMissingError(name)
        for offset in range(0, size_bytes, _PIECE_BYTES):
            self.before("piece", name)
            sink(content[offset : offset + _PIECE_BYTES])

    def stat(self, name: str) -> StoredObject:
        self.before("stat", name)
        return self._find(name)[1]

    def list(self, under: str = "") -> Iterator[StoredObject]:
        self.before("list", under)
        yield from (found for name, (_, found) in sorted(self.store.objects.items()) if name.startswith(under))

    def delete(self, name: str) -> None:
        self.before("delete", name)
        self.store.objects.pop(name, None)

    def abort_uploads(self, under: str) -> int:
        self.before("abort", under)
        begun = [key for key, name in self.store.uploads.items() if name.startswith(under)]
        for key in begun:
            del self.store.uploads[key]
        return len(begun)

    def close(self) -> None:
        pass

    def complete(self, upload: _Upload) -> None:
        self.before("complete", upload.name)
        with self._lock:
            self.store.uploads.pop(id(upload), None)
            self._write(upload.name, b"".join(upload.parts[index] for index in sorted(upload.parts)))

    def _find(self, name: str) -> tuple[bytes, StoredObject]:
        try:
            return self.store.objects[name]
        except KeyError:
            raise ObjectMissingError(name) from None

    def _write(self, name: str, content: bytes) -> None:
        self.store.num_writes += 1
        crc32c = f"{google_crc32c.value(content):08x}"
        version = str(self.store.num_writes)
        self.store.objects[name] = content, StoredObject(name, len(content), self.store.now(), version, crc32c)


class _Upload(PartedUpload):
    def __init__(self, bucket: MemoryBucket, name: str, size_bytes: int, part_bytes: int) -> None:
        super().__init__(size_bytes, part_bytes)
        self._bucket = bucket
        self.name = name
        self.parts: dict[int, bytes] = {}

    def put_part(self, index: int, content: bytes) -> None:
        self._bucket.before("part", self.name)
        self.parts[index] = content

    def _complete(self) -> None:
        self._bucket.complete(self)

    def _abort(self) -> None:
        self._bucket.before("abort", self.name)
        self._bucket.store.uploads.pop(id(self), None)
