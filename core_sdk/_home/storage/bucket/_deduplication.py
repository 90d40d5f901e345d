"""Knows which contents the bucket already holds, so that they need not be sent again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from core_sdk._ground.records import FileEntry, Manifest
from core_sdk.errors import CheckpointError

# Requesting a copy costs as much as sending fewer bytes than this.
_WORTH_COPYING_BYTES = 4096
# Enough for a hundred checkpoints of ten thousand files; takes about 200 MB at most.
_MAX_ENTRIES = 1_000_000

_Content = tuple[int, str, str]


class KnownContents:
    """The contents that the manifests of known checkpoints list. Safe in threads. The oldest are dropped first."""

    def __init__(self, read_manifest: Callable[[str], Manifest]) -> None:
        self._read_manifest = read_manifest
        self._unread: list[str] = []
        self._objects: dict[_Content, tuple[str, str]] = {}
        """The storage id and the name for each content; the newest come last."""
        self._lock = threading.RLock()

    def remember(self, storage_ids: Sequence[str]) -> None:
        """Adds checkpoints. Their manifests are read by the next `find`."""
        with self._lock:
            self._unread += [storage_id for storage_id in storage_ids if storage_id not in self._unread]

    def learn(self, manifest: Manifest) -> None:
        with self._lock:
            for name, entry in manifest.files.items():
                if entry.xxh128 and entry.size_bytes >= _WORTH_COPYING_BYTES:
                    self._objects.pop(_content(entry), None)
                    self._objects[_content(entry)] = (manifest.storage_id, name)
            while len(self._objects) > _MAX_ENTRIES:
                del self._objects[next(iter(self._objects))]

    def find(self, entry: FileEntry) -> str | None:
        """Returns the name of an object with this content, or None. The object may have been deleted since."""
        if not entry.xxh128:
            return None
        # Other threads wait here too: the manifests that are being read may hold their answer.
        with self._lock:
            while self._unread:
                try:
                    self.learn(self._read_manifest(self._unread.pop(0)))
                except CheckpointError:
                    continue  # an unreadable manifest helps no upload
            found = self._objects.get(_content(entry))
        return None if found is None else "/".join(found)


def _content(entry: FileEntry) -> _Content:
    return entry.size_bytes, entry.crc32c, entry.xxh128
