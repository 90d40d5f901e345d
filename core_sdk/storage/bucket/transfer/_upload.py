"""Files on their way up: many at once, large ones in parts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import google_crc32c

from core_sdk.errors import StorageError
from core_sdk.records import FileEntry
from core_sdk.storage._checksum import checksum
from core_sdk.storage.bucket._bucket import Bucket, ObjectMissingError, PartedUpload, StreamedUpload, TransientError
from core_sdk.storage.bucket._limits import Limits
from core_sdk.storage.bucket._retry import Retry, TransferCancelledError
from core_sdk.storage.bucket.transfer._crc32c import Crc32c, joined
from core_sdk.storage.bucket.transfer._progress import Progress
from core_sdk.storage.bucket.transfer._threads import TransferThreads

T = TypeVar("T")


@dataclass(frozen=True)
class FileToUpload:
    """A file that becomes an object."""

    path: Path
    object_name: str
    entry: FileEntry
    """What was found in the file when the checkpoint was sealed."""


class FileChangedError(Exception):
    """A file is not any more what it was when it was sealed."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path.name!r} changed while it was being stored: end every write to it first")


class Uploader:
    """Sends files, or has the store copy what it holds already; `cancelled` ends it early."""

    def __init__(
        self,
        bucket: Bucket,
        limits: Limits,
        cancelled: threading.Event,
        progress: Progress,
        held: Callable[[FileEntry], str | None],
    ) -> None:
        """`held` names an object with this very content, if one is known."""
        self._bucket = bucket
        self._limits = limits
        self._cancelled = cancelled
        self._progress = progress
        self._held = held
        self._retry = Retry(limits.deadline_s, cancelled)
        # Contents that are in memory at one time, so that this stays bounded whatever the files' sizes.
        self._slots = threading.Semaphore(limits.num_contents)
        self._begun: list[PartedUpload | StreamedUpload] = []

    def send(self, files: Sequence[FileToUpload]) -> None:
        """All of them, or an error and nothing left of those that travel in parts.

        Raises `FileChangedError`, `TransferCancelledError`, `StorageError`, or `OSError` for a file.
        """
        try:
            with TransferThreads(self._limits.num_threads, self._cancelled) as crew:
                # The largest first, since the last one to begin is the one that all wait for.
                for file in sorted(files, key=lambda file: -file.entry.size_bytes):
                    crew.add(partial(self._send, file, crew))
                crew.wait()
        except BaseException:
            self._abort()
            raise

    def _send(self, file: FileToUpload, crew: TransferThreads) -> None:
        if self._copy(file):
            self._progress.add(file.entry.size_bytes)
        elif file.entry.size_bytes <= self._limits.whole_bytes:
            self._send_whole(file)
        else:
            self._send_large(file, crew)

    def _copy(self, file: FileToUpload) -> bool:
        source = self._held(file.entry)
        if source is None:
            return False
        copy = partial(self._bucket.copy, source, file.object_name, file.entry)
        try:
            copied = self._retry.call(self._bucket.where(file.object_name), copy)
        except (ObjectMissingError, StorageError):
            return False  # it has been deleted meanwhile, or may not be read: then the file travels
        return copied.size_bytes == file.entry.size_bytes and copied.crc32c in (None, file.entry.crc32c)

    def _send_whole(self, file: FileToUpload) -> None:
        with self._slots if file.entry.size_bytes > self._limits.small_bytes else contextlib.nullcontext():
            content = file.path.read_bytes()
            if (len(content), f"{google_crc32c.value(content):08x}") != (file.entry.size_bytes, file.entry.crc32c):
                raise FileChangedError(file.path)
            self._call(file, partial(self._bucket.put, file.object_name, content))
        self._progress.add(len(content))

    def _send_large(self, file: FileToUpload, crew: TransferThreads) -> None:
        upload = self._call(file, partial(self._bucket.begin, file.object_name, file.entry))
        self._begun.append(upload)
        if isinstance(upload, StreamedUpload):
            self._stream(file, upload)
            return
        parts = _Parts(file, upload)
        crew.add_next(*(partial(self._send_part, parts, index) for index in range(parts.num_parts)))

    def _stream(self, file: FileToUpload, upload: StreamedUpload) -> None:
        num_bytes = 0

        def advance(num_more: int) -> None:
            nonlocal num_bytes
            num_bytes += num_more
            self._advance(num_more)

        def send() -> None:
            try:
                upload.send(file.path, advance)
            except TransientError:
                # Perhaps not the network's fault.
                if not checksum(file.path).is_content_of(file.entry):
                    raise FileChangedError(file.path) from None
                raise

        self._retry.call(self._bucket.where(file.object_name), send, lambda: num_bytes)

    def _send_part(self, parts: _Parts, index: int) -> None:
        with self._slots:
            content = parts.read(index)
            self._call(parts.file, partial(parts.upload.put_part, index, content))
        self._progress.add(len(content))
        if parts.note(index, Crc32c(google_crc32c.value(content), len(content))):
            parts.check()
            self._call(parts.file, parts.upload.complete)

    def _call(self, file: FileToUpload, work: Callable[[], T]) -> T:
        return self._retry.call(self._bucket.where(file.object_name), work)

    def _advance(self, num_bytes: int) -> None:
        if self._cancelled.is_set():
            raise TransferCancelledError
        self._progress.add(num_bytes)

    def _abort(self) -> None:
        for upload in self._begun:
            # What cannot be aborted now is swept later.
            with contextlib.suppress(TransientError, StorageError, ObjectMissingError):
                upload.abort()


@dataclass
class _Parts:
    """A file in parts, some of which have arrived."""

    file: FileToUpload
    upload: PartedUpload
    _checksums: dict[int, Crc32c] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def num_parts(self) -> int:
        return -(-self.file.entry.size_bytes // self.upload.part_bytes)

    def read(self, index: int) -> bytes:
        with self.file.path.open("rb") as opened:
            opened.seek(index * self.upload.part_bytes)
            return opened.read(self.upload.part_bytes)

    def note(self, index: int, checksum: Crc32c) -> bool:
        """Whether it was the last one to arrive."""
        with self._lock:
            self._checksums[index] = checksum
            return len(self._checksums) == self.num_parts

    def check(self) -> None:
        whole = joined(self._checksums[index] for index in range(self.num_parts))
        if (whole.num_bytes, str(whole)) != (self.file.entry.size_bytes, self.file.entry.crc32c):
            raise FileChangedError(self.file.path)
