"""Writes a journal."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
import warnings
from pathlib import Path

from core_sdk.errors import JournalClosedError, JournalForkedError, ReportsDroppedError
from core_sdk.files import fsync_directory, opened_regular, write_atomically
from core_sdk.journal._journal import Journal
from core_sdk.journal._line import encode_line
from core_sdk.records import Dropped, Record

logger = logging.getLogger("core_sdk.journal")

_CLOSED = -1
_FORKED = -2
_STDERR = 2
_TAIL_BYTES = 64 << 10


class JournalWriter(Journal):
    """Creates the journal and appends to it; `FileExistsError` if the file is there already.

    `append` may be called from any thread. A record that cannot be written (a full disk) is dropped, counted and
    announced at once by a warning; `close` raises `ReportsDroppedError` once for all of them. In a forked child every
    `append` raises `JournalForkedError`.
    """

    def __init__(self, path: Path, *, fsync_interval_s: float = 1.0) -> None:
        # Readable, so that the writer can see where half a line begins.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = _above_standard_streams(os.open(path, flags, 0o600))
        fsync_directory(path.parent)
        self._is_writing = False
        self._is_dirty = False
        self._num_dropped = 0
        self._num_unannounced = 0
        self._drop_reason = ""
        self._unsynced: list[Path] = []
        """Files that were kept since the last fsync."""
        self._closing = threading.Event()
        self._fsync_thread = threading.Thread(
            target=self._fsync_while_dirty, args=(fsync_interval_s,), name="core-sdk-fsync", daemon=True
        )
        self._fsync_thread.start()
        super().__init__(path)

    def append_under_lock(self, record: Record) -> None:
        try:
            self._write(record)
        except OSError as error:
            self.check_open()
            self._drop(error)

    def append_or_raise(self, record: Record) -> None:
        with self.lock:
            self.check_open()
            self._write(record)

    def keep_file(self, name: str, content: bytes) -> str:
        self.check_open()
        path = self.path.parent / name
        if _has_size(path, len(content)):
            return ""
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            write_atomically(path, content, is_durable=False)
        except OSError as error:
            with self.lock:
                self.check_open()
                self._drop(error)
            return error.strerror or str(error)
        with self.lock:
            self._unsynced.append(path)
        return ""

    def check_open(self) -> None:
        if self._descriptor == _CLOSED:
            raise JournalClosedError(self.path)
        if self._descriptor == _FORKED:
            raise JournalForkedError(self.path)

    def close(self) -> None:
        """Fsyncs and closes; does nothing the second time. Raises `ReportsDroppedError` if records were lost."""
        if self._descriptor < 0:
            return
        self._closing.set()
        self._fsync_thread.join(timeout=10)
        with self.lock:
            if self._num_unannounced:
                self._announce_at_last()
            self._fsync()
            descriptor, self._descriptor = self._descriptor, _CLOSED
            os.close(descriptor)
        if self._num_dropped:
            raise ReportsDroppedError(self.path, self._num_dropped, self._drop_reason)

    def _write(self, record: Record) -> None:
        """Writes a whole line, or raises `OSError` and leaves nothing of it. The lock must be held."""
        line = encode_line(record)
        if self._num_unannounced:
            self._announce()
        # Only a signal handler can interrupt a write of its own thread, which may then have left half a line.
        is_nested, self._is_writing = self._is_writing, True
        try:
            if is_nested:
                _cut_half_line(self._descriptor)
            if os.write(self._descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except BaseException:
            _cut_half_line(self._descriptor)
            raise
        finally:
            self._is_writing = is_nested
        self._is_dirty = True

    def _drop(self, error: OSError) -> None:
        is_first = self._num_dropped == 0
        self._num_dropped += 1
        self._num_unannounced += 1
        self._drop_reason = str(error)
        if is_first:
            message = f"records are being dropped, training goes on: {self._drop_reason} ({self.path})"
            logger.error(message)
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _announce(self) -> None:
        """Records how many records could not be written; `OSError` if this cannot be written either."""
        count, self._num_unannounced = self._num_unannounced, 0
        try:
            self._write(Dropped(time=time.time(), count=count, reason=self._drop_reason))
        except OSError:
            self._num_unannounced += count
            raise
        logger.error("%s can be written again; %d records were dropped", self.path, count)

    def _announce_at_last(self) -> None:
        try:
            self._announce()
        except OSError as error:
            logger.error("the number of dropped records could not be written to %s: %s", self.path, error)

    def _fsync_while_dirty(self, interval_s: float) -> None:
        while not self._closing.wait(interval_s):
            if self._is_dirty:
                self._is_dirty = False
                self._fsync()

    def _fsync(self) -> None:
        """Fsyncs the journal, and first the files that its records name."""
        with self.lock:
            files, self._unsynced = self._unsynced, []
        try:
            for path in files:
                with opened_regular(path) as descriptor:
                    os.fsync(descriptor)
            for directory in {path.parent for path in files}:
                fsync_directory(directory)
            os.fsync(self._descriptor)
        except OSError as error:
            # After a failed fsync the kernel may have forgotten the pages: a second success would prove nothing.
            logger.error("the disk may lose the latest records of %s in a power cut: %s", self.path, error)

    def _forget_in_child(self) -> None:
        super()._forget_in_child()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = _FORKED
            self._num_unannounced = 0


def _cut_half_line(descriptor: int) -> None:
    """Cuts the file behind its last newline, since half a line would spoil the next one."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - _TAIL_BYTES)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        end = begin + newline + 1
        if newline >= 0:
            break
    if end < size:
        os.ftruncate(descriptor, end)


def _has_size(path: Path, size_bytes: int) -> bool:
    try:
        return path.stat(follow_symlinks=False).st_size == size_bytes
    except OSError:
        return False


def _above_standard_streams(descriptor: int) -> int:
    """Returns the descriptor moved above 2: in a process without standard streams, C code would print to it."""
    if descriptor > _STDERR:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    finally:
        os.close(descriptor)
