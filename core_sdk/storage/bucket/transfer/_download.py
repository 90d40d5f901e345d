"""Objects on their way down: many at once, large ones in ranges, each verified before it gets its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import google_crc32c

from core_sdk.records import FileEntry
from core_sdk.storage.bucket._bucket import Bucket, ObjectMissingError
from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._retry import Retry, TransferCancelledError
from core_sdk.storage.bucket.transfer._crc32c import Crc32c, joined
from core_sdk.storage.bucket.transfer._part_file import Nowhere, PartFile, Target
from core_sdk.storage.bucket.transfer._progress import Progress
from core_sdk.storage.bucket.transfer._threads import TransferThreads

# Once more for what was damaged on its way; what lies damaged in the store stays so.
_NUM_TRIES = 2


@dataclass(frozen=True)
class ObjectToDownload:
    """An object that becomes a file, or is only read."""

    object_name: str
    entry: FileEntry
    """What it must turn out to be."""
    path: Path | None
    """None to read it and keep nothing."""


class WrongContentError(Exception):
    """What arrived is not what was stored."""

    def __init__(self, object_name: str, found: FileEntry) -> None:
        super().__init__(object_name)
        self.object_name = object_name
        self.found = found


class MissingContentError(Exception):
    """An object is not there, or shorter than what was stored."""

    def __init__(self, object_name: str) -> None:
        super().__init__(object_name)
        self.object_name = object_name


class Downloader:
    """Fetches objects; `cancelled` ends it early."""

    def __init__(self, bucket: Bucket, limits: Limits, cancelled: threading.Event, progress: Progress) -> None:
        self._bucket = bucket
        self._limits = limits
        self._cancelled = cancelled
        self._progress = progress
        self._retry = Retry(limits.deadline_s, cancelled)

    def receive(self, objects: Sequence[ObjectToDownload]) -> None:
        """All of them. What has arrived of a large one when an error comes is not fetched again the next time.

        Raises `WrongContentError`, `MissingContentError`, `TransferCancelledError`, `StorageError`, or `OSError`.
        """
        arriving: list[_PartialDownload] = []
        try:
            with TransferThreads(self._limits.num_threads, self._cancelled) as crew:
                for wanted in sorted(objects, key=lambda wanted: -wanted.entry.size_bytes):
                    crew.add(partial(self._begin, wanted, crew, arriving, _NUM_TRIES))
                crew.wait()
        finally:
            for one in arriving:
                one.target.close()

    def _begin(
        self, wanted: ObjectToDownload, crew: TransferThreads, begun: list[_PartialDownload], num_tries: int
    ) -> None:
        target = Nowhere() if wanted.path is None else PartFile(wanted.path, wanted.entry, self._limits.range_bytes)
        arriving = _PartialDownload(wanted, target, self._limits.range_bytes)
        begun.append(arriving)
        if missing := arriving.missing():
            fetches = [partial(self._fetch, arriving, index, crew, begun, num_tries) for index in missing]
            crew.add_next(*fetches[1:])
            fetches[0]()
        else:
            self._finish(arriving, crew, begun, num_tries)

    def _fetch(
        self,
        arriving: _PartialDownload,
        index: int,
        crew: TransferThreads,
        begun: list[_PartialDownload],
        num_tries: int,
    ) -> None:
        piece = _RangeDownload(arriving, index, self._advance)
        name = arriving.wanted.object_name
        try:
            self._retry.call(self._bucket.where(name), lambda: piece.fetch(self._bucket), lambda: piece.num_bytes)
        except ObjectMissingError as error:
            raise MissingContentError(name) from error
        if arriving.note(index, piece.checksum):
            self._finish(arriving, crew, begun, num_tries)

    def _finish(
        self, arriving: _PartialDownload, crew: TransferThreads, begun: list[_PartialDownload], num_tries: int
    ) -> None:
        found = arriving.found()
        if found.is_content_of(arriving.wanted.entry):
            arriving.target.keep()
            return
        arriving.target.drop()
        if num_tries <= 1:
            raise WrongContentError(arriving.wanted.object_name, found)
        self._progress.add(-found.size_bytes)
        self._begin(arriving.wanted, crew, begun, num_tries - 1)

    def _advance(self, num_bytes: int) -> None:
        if self._cancelled.is_set():
            raise TransferCancelledError
        self._progress.add(num_bytes)


class _PartialDownload:
    """An object, some ranges of which have arrived."""

    def __init__(self, wanted: ObjectToDownload, target: Target, range_bytes: int) -> None:
        self.wanted = wanted
        self.target = target
        self.range_bytes = range_bytes
        self._num_ranges = -(-wanted.entry.size_bytes // range_bytes)
        self._checksums = target.arrived()
        self._lock = threading.Lock()

    def missing(self) -> list[int]:
        return [index for index in range(self._num_ranges) if index not in self._checksums]

    def size_of(self, index: int) -> int:
        return min(self.range_bytes, self.wanted.entry.size_bytes - index * self.range_bytes)

    def note(self, index: int, checksum: Crc32c) -> bool:
        """Whether it was the last one to arrive."""
        with self._lock:
            self._checksums[index] = checksum
            self.target.note(index, checksum)
            return len(self._checksums) == self._num_ranges

    def found(self) -> FileEntry:
        whole = joined(self._checksums[index] for index in range(self._num_ranges))
        return FileEntry(size_bytes=whole.num_bytes, crc32c=str(whole))


class _RangeDownload:
    """One range, which goes on where it broke off."""

    def __init__(self, arriving: _PartialDownload, index: int, advance: Callable[[int], None]) -> None:
        self._arriving = arriving
        self._start = index * arriving.range_bytes
        self._size_bytes = arriving.size_of(index)
        self._advance = advance
        self._crc32c = 0
        self.num_bytes = 0

    @property
    def checksum(self) -> Crc32c:
        return Crc32c(self._crc32c, self.num_bytes)

    def fetch(self, bucket: Bucket) -> None:
        rest = self._size_bytes - self.num_bytes
        if rest:
            bucket.read(self._arriving.wanted.object_name, self._start + self.num_bytes, rest, self._take)

    def _take(self, content: bytes) -> None:
        self._arriving.target.write(self._start + self.num_bytes, content)
        self._crc32c = google_crc32c.extend(self._crc32c, content)
        self.num_bytes += len(content)
        self._advance(len(content))
