"""Uploads files: many at once, large ones in parts."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import google_crc32c

from core_sdk._ground.records import FileEntry
from core_sdk._home.storage.bucket._bucket import Bucket, ObjectMissingError, PartedUpload, TransientError
from core_sdk._home.storage.bucket._limits import Limits
from core_sdk._home.storage.bucket._retry import Retry
from core_sdk._home.storage.bucket.transfer._crc32c import Crc32c, joined
from core_sdk._home.storage.bucket.transfer._progress import TransferProgress
from core_sdk._home.storage.bucket.transfer._threads import Task, run_in_threads
from core_sdk.errors import StorageError, StorageUnreachableError

logger = logging.getLogger("core_sdk.storage")

T = TypeVar("T")

# A store drops an upload that another process has aborted, or that has lasted for too long.
_NUM_TRIES = 3


@dataclass(frozen=True)
class FileToUpload:
    path: Path
    object_name: str
    entry: FileEntry
    """The size and checksum of the file when the checkpoint was sealed."""


class FileChangedError(Exception):
    """A file has changed since the checkpoint was sealed."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name!r} changed while it was being stored: end every write to it first")


class Uploader:
    """Sends files. `cancelled` ends it early."""

    def __init__(
        self,
        bucket: Bucket,
        limits: Limits,
        cancelled: threading.Event,
        progress: TransferProgress,
    ) -> None:
        self._bucket = bucket
        self._limits = limits
        self._cancelled = cancelled
        self._progress = progress
        self._retry = Retry(limits.deadline_s, cancelled)
        # Limits the number of contents in memory at one time.
        self._slots = threading.Semaphore(limits.num_contents)
        self._begun: list[PartedUpload] = []

    def send(self, files: Sequence[FileToUpload]) -> None:
        """Sends all files. After an error, removes the parts of those that are sent in parts.

        Raises `FileChangedError`, `TransferCancelledError`, `StorageError`, or `OSError` for a file.
        """
        # A large file that began last would be waited for alone.
        largest_first = sorted(files, key=lambda file: -file.entry.size_bytes)
        try:
            run_in_threads(
                (partial(self._send, file) for file in largest_first), self._limits.num_threads, self._cancelled
            )
        except BaseException as error:
            if not isinstance(error, StorageUnreachableError):
                self._abort()
            raise

    def _send(self, file: FileToUpload) -> Iterable[Task] | None:
        if file.entry.size_bytes <= self._limits.whole_bytes:
            self._send_whole(file)
            return None
        return self._begin(file)

    def _send_whole(self, file: FileToUpload) -> None:
        with self._slots if file.entry.size_bytes > self._limits.small_bytes else contextlib.nullcontext():
            content = file.path.read_bytes()
            if (len(content), f"{google_crc32c.value(content):08x}") != (file.entry.size_bytes, file.entry.crc32c):
                raise FileChangedError(file.path)
            self._call(file, partial(self._bucket.put, file.object_name, content))
        self._progress.add(len(content))

    def _begin(self, file: FileToUpload, num_tries: int = _NUM_TRIES) -> Iterable[Task]:
        upload = self._call(file, partial(self._bucket.begin, file.object_name, file.entry))
        self._begun.append(upload)
        parts = _FileInParts(file, upload, num_tries)
        return (partial(self._send_part, parts, index) for index in range(upload.num_parts))

    def _send_part(self, parts: _FileInParts, index: int) -> Iterable[Task] | None:
        if parts.is_dropped:
            return None
        try:
            with self._slots:
                content = parts.read(index)
                self._call(parts.file, partial(parts.upload.put_part, index, content))
            self._progress.add(len(content))
            if parts.note(index, Crc32c(google_crc32c.value(content), len(content))):
                parts.check()
                self._call(parts.file, parts.upload.complete)
        except ObjectMissingError:
            return self._begin_again(parts)
        return None

    def _begin_again(self, parts: _FileInParts) -> Iterable[Task] | None:
        """Sends all parts of a file again if the store has dropped its upload. Does nothing the second time."""
        if parts.drop():
            return None
        if parts.num_tries == 1:
            raise ObjectMissingError(parts.file.object_name)
        logger.warning("%s: the store has dropped its upload, which begins again", parts.file.path.name)
        self._progress.add(-parts.num_bytes)
        return self._begin(parts.file, parts.num_tries - 1)

    def _call(self, file: FileToUpload, work: Callable[[], T]) -> T:
        return self._retry.call(self._bucket.where(file.object_name), work)

    def _abort(self) -> None:
        for upload in self._begun:
            # An upload that cannot be aborted now is swept later.
            with contextlib.suppress(TransientError, StorageError, ObjectMissingError):
                upload.abort()


@dataclass
class _FileInParts:
    """A file of which some parts have arrived."""

    file: FileToUpload
    upload: PartedUpload
    num_tries: int
    is_dropped: bool = False
    """The store has dropped the upload, with all parts."""
    _checksums: dict[int, Crc32c] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, index: int) -> bytes:
        with self.file.path.open("rb") as opened:
            opened.seek(index * self.upload.part_bytes)
            return opened.read(self.upload.part_bytes)

    def note(self, index: int, checksum: Crc32c) -> bool:
        """Records that a part has arrived. Returns whether it was the last one."""
        with self._lock:
            self._checksums[index] = checksum
            return len(self._checksums) == self.upload.num_parts

    def drop(self) -> bool:
        """Notes that the store has dropped the upload. Returns whether that was known."""
        with self._lock:
            was_dropped, self.is_dropped = self.is_dropped, True
        return was_dropped

    @property
    def num_bytes(self) -> int:
        """The size of the parts that have arrived."""
        return sum(checksum.num_bytes for checksum in self._checksums.values())

    def check(self) -> None:
        whole = joined(self._checksums[index] for index in range(self.upload.num_parts))
        if (whole.num_bytes, str(whole)) != (self.file.entry.size_bytes, self.file.entry.crc32c):
            raise FileChangedError(self.file.path)
