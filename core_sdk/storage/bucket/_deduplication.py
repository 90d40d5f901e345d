"""Which contents the storage holds already, so that they need not travel again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from core_sdk.errors import CheckpointError
from core_sdk.records import FileEntry, Manifest

# To ask for a copy costs as much as to send so little.
_WORTH_COPYING_BYTES = 4096
# Enough for a hundred checkpoints of ten thousand files, in some 200 MB at the very most.
_MAX_ENTRIES = 1_000_000

_Content = tuple[int, str, str]


class KnownContents:
    """Learns from manifests; safe in threads. Old checkpoints give way to newer ones."""

    def __init__(self, read_manifest: Callable[[str], Manifest]) -> None:
        self._read_manifest = read_manifest
        self._pending: list[str] = []
        self._objects: dict[_Content, tuple[str, str]] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()

    def remember(self, storage_ids: Sequence[str]) -> None:
        """Their manifests are read when it is first asked for contents."""
        with self._lock:
            self._pending += [storage_id for storage_id in storage_ids if storage_id not in self._pending]

    def learn(self, manifest: Manifest) -> None:
        with self._lock:
            for name, entry in manifest.files.items():
                if entry.xxh128 and entry.size_bytes >= _WORTH_COPYING_BYTES:
                    # Taken out first, so that the newest stand last.
                    self._objects.pop(_content(entry), None)
                    self._objects[_content(entry)] = (manifest.storage_id, name)
            while len(self._objects) > _MAX_ENTRIES:
                del self._objects[next(iter(self._objects))]

    def forget(self, storage_id: str) -> None:
        """It has been deleted, in part or as a whole."""
        with self._lock:
            self._objects = {key: place for key, place in self._objects.items() if place[0] != storage_id}

    def find(self, entry: FileEntry) -> str | None:
        """The object with this content."""
        self._read_pending()
        with self._lock:
            place = self._objects.get(_content(entry)) if entry.xxh128 else None
        return None if place is None else "/".join(place)

    def _read_pending(self) -> None:
        # Who asks meanwhile waits: the answer may be among what is being read.
        with self._reading:
            with self._lock:
                pending, self._pending = self._pending, []
            for storage_id in pending:
                try:
                    self.learn(self._read_manifest(storage_id))
                except CheckpointError:
                    continue  # what cannot be read saves nothing


def _content(entry: FileEntry) -> _Content:
    return entry.size_bytes, entry.crc32c, entry.xxh128
