"""The file that receives an object's ranges until all of them have arrived."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import uuid
from pathlib import Path

import google_crc32c

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket.transfer._crc32c import Crc32c


class Target:
    """Receives ranges, in any order and from many threads. This class discards them: the object is only verified."""

    def arrived(self) -> dict[int, Crc32c]:
        """Returns the complete ranges that an earlier download has left here, by their index."""
        return {}

    def write(self, offset: int, content: bytes) -> None:
        """Writes some bytes of a range."""

    def note(self, index: int, checksum: Crc32c) -> None:
        """Records that a range is complete."""

    def keep(self) -> None:
        """Keeps the content, after everything has arrived and been verified."""

    def drop(self) -> None:
        """Discards the content, after something wrong has arrived."""

    def close(self) -> None:
        """Stops receiving. Does nothing after `keep` or `drop`."""


class PartFile(Target):
    """A hidden file next to the final one, to which it is renamed, and a second hidden file that lists its ranges.

    Both stay when a download is interrupted, so that the next one resumes. A listed range is read back before it is
    trusted: after a power failure the list may be ahead of the content.
    """

    def __init__(self, path: Path, entry: FileEntry, range_bytes: int) -> None:
        self._path = path
        self._range_bytes = range_bytes
        self._part_path = path.with_name(_part_name(path.name, entry, range_bytes))
        self._descriptor = _open(self._part_path)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Another process is fetching the same file into the same directory.
            os.close(self._descriptor)
            self._part_path = path.with_name(f".core-sdk-{uuid.uuid4().hex}.part")
            self._descriptor = _open(self._part_path)
        self._list_path = self._part_path.with_suffix(".ranges")
        self._has_list = entry.size_bytes > range_bytes

    def arrived(self) -> dict[int, Crc32c]:
        return {index: checksum for index, checksum in self._listed() if self._has(index, checksum)}

    def write(self, offset: int, content: bytes) -> None:
        view = memoryview(content)
        while view:
            num_written = os.pwrite(self._descriptor, view, offset)
            offset += num_written
            view = view[num_written:]

    def note(self, index: int, checksum: Crc32c) -> None:
        if self._has_list:
            with self._list_path.open("a") as file:
                file.write(f"{index} {checksum.value} {checksum.num_bytes}\n")

    def keep(self) -> None:
        self._part_path.replace(self._path)
        self._list_path.unlink(missing_ok=True)
        self.close()

    def drop(self) -> None:
        self._part_path.unlink(missing_ok=True)
        self._list_path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _listed(self) -> list[tuple[int, Crc32c]]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            lines = self._list_path.read_text().splitlines()
            numbers = [tuple(map(int, line.split())) for line in lines]
            return [(index, Crc32c(value, num_bytes)) for index, value, num_bytes in numbers]
        return []

    def _has(self, index: int, checksum: Crc32c) -> bool:
        content = os.pread(self._descriptor, checksum.num_bytes, index * self._range_bytes)
        return Crc32c(google_crc32c.value(content), len(content)) == checksum


def _part_name(name: str, entry: FileEntry, range_bytes: int) -> str:
    """Returns a name of bounded length that depends only on the arguments, so that the next download finds the file."""
    name_hash = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f".core-sdk-{name_hash}-{entry.crc32c}-{entry.size_bytes:x}-{range_bytes:x}.part"


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
