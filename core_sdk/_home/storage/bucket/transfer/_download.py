"""Downloads objects: many at once, large ones in ranges, each verified before it gets its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import google_crc32c

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import Bucket, ObjectMissingError
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._retry import Retry, TransferCancelledError
from core_sdk._home.storage.bucket.transfer._crc32c import Crc32c, joined
from core_sdk._home.storage.bucket.transfer._part_file import PartFile, Target
from core_sdk._home.storage.bucket.transfer._progress import TransferProgress
from core_sdk._home.storage.bucket.transfer._threads import Task, run_in_threads

# A second try helps if the object was damaged on its way. If it is damaged in the store, no try helps.
_NUM_TRIES = 2


@dataclass(frozen=True)
class ObjectToDownload:
    object_name: str
    entry: FileEntry
    """The size and checksum that the object must have."""
    path: Path | None
    """The file to write; None if the object is only read."""


class ContentError(Exception):
    """An object is not what was stored."""

    def __init__(self, object_name: str, found: FileEntry | None) -> None:
        """`found` is None if the object is missing or too short."""
        super().__init__(object_name)
        self.object_name = object_name
        self.found = found


class Downloader:
    """Fetches objects, each in ranges."""

    def __init__(self, bucket: Bucket, limits: Limits, progress: TransferProgress) -> None:
        self._bucket = bucket
        self._limits = limits
        self._progress = progress
        self._cancelled = threading.Event()
        self._retry = Retry(limits.deadline_s, self._cancelled)
        self._begun: list[_PartialDownload] = []

    def fetch(self, objects: Sequence[ObjectToDownload]) -> None:
        """Fetches all objects. After an error, the ranges of large objects that have arrived are not fetched again.

        Raises `ContentError`, `StorageError`, or `OSError` for a file.
        """
        largest_first = sorted(objects, key=lambda wanted: -wanted.entry.size_bytes)
        tasks = [partial(self._begin, wanted, _NUM_TRIES) for wanted in largest_first]
        try:
            run_in_threads(tasks, self._limits.num_threads, self._cancelled)
        finally:
            for download in self._begun:
                download.target.close()

    def _begin(self, wanted: ObjectToDownload, num_tries: int) -> Iterable[Task]:
        target = Target() if wanted.path is None else PartFile(wanted.path, wanted.entry, self._limits.range_bytes)
        download = _PartialDownload(wanted, target, self._limits.range_bytes, num_tries)
        self._begun.append(download)
        if missing := download.missing():
            return [partial(self._fetch_range, download, index) for index in missing]
        return self._finish(download)

    def _fetch_range(self, download: _PartialDownload, index: int) -> Iterable[Task]:
        piece = _RangeDownload(download, index, self._advance)
        name = download.wanted.object_name
        try:
            self._retry.call(self._bucket.where(name), lambda: piece.fetch(self._bucket), lambda: piece.num_bytes)
        except ObjectMissingError as error:
            raise ContentError(name, None) from error
        return self._finish(download) if download.note(index, piece.checksum) else ()

    def _finish(self, download: _PartialDownload) -> Iterable[Task]:
        found = download.found()
        if found == download.wanted.entry:
            download.target.keep()
            return ()
        download.target.drop()
        if download.num_tries <= 1:
            raise ContentError(download.wanted.object_name, found)
        self._progress.add(-found.size_bytes)
        return self._begin(download.wanted, download.num_tries - 1)

    def _advance(self, num_bytes: int) -> None:
        if self._cancelled.is_set():
            raise TransferCancelledError
        self._progress.add(num_bytes)


class _PartialDownload:
    """An object, some ranges of which have arrived."""

    def __init__(self, wanted: ObjectToDownload, target: Target, range_bytes: int, num_tries: int) -> None:
        self.wanted = wanted
        self.target = target
        self.range_bytes = range_bytes
        self.num_tries = num_tries
        """The number of tries, this one included."""
        self._num_ranges = -(-wanted.entry.size_bytes // range_bytes)
        self._checksums = target.arrived()
        self._lock = threading.Lock()

    def missing(self) -> list[int]:
        return [index for index in range(self._num_ranges) if index not in self._checksums]

    def size_of(self, index: int) -> int:
        return min(self.range_bytes, self.wanted.entry.size_bytes - index * self.range_bytes)

    def note(self, index: int, checksum: Crc32c) -> bool:
        """Records that a range has arrived. Returns whether it was the last one."""
        with self._lock:
            self._checksums[index] = checksum
            self.target.note(index, checksum)
            return len(self._checksums) == self._num_ranges

    def found(self) -> FileEntry:
        whole = joined(self._checksums[index] for index in range(self._num_ranges))
        return FileEntry(size_bytes=whole.num_bytes, crc32c=str(whole))


class _RangeDownload:
    """The download of one range. After an interruption, `fetch` resumes where the last call stopped."""

    def __init__(self, download: _PartialDownload, index: int, advance: Callable[[int], None]) -> None:
        self._download = download
        self._start = index * download.range_bytes
        self._size_bytes = download.size_of(index)
        self._advance = advance
        self._crc32c = 0
        self.num_bytes = 0

    @property
    def checksum(self) -> Crc32c:
        return Crc32c(self._crc32c, self.num_bytes)

    def fetch(self, bucket: Bucket) -> None:
        rest = self._size_bytes - self.num_bytes
        if rest:
            bucket.read(self._download.wanted.object_name, self._start + self.num_bytes, rest, self._take)

    def _take(self, content: bytes) -> None:
        self._download.target.write(self._start + self.num_bytes, content)
        self._crc32c = google_crc32c.extend(self._crc32c, content)
        self.num_bytes += len(content)
        self._advance(len(content))
