"""The writing end of a journal."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
import warnings
import weakref
from pathlib import Path

from core_sdk.errors import JournalClosedError, JournalForkedError, ReportsDroppedError
from core_sdk.files import fsync_directory
from core_sdk.journal._journal import Journal
from core_sdk.journal._line import encode_line
from core_sdk.records import Dropped, Record

logger = logging.getLogger("core_sdk.journal")

_CLOSED = -1
_FORKED = -2
_STDERR = 2


class JournalWriter(Journal):
    """Creates the journal and appends to it; `FileExistsError` if the file is there already.

    `append` may be called from any thread. A record that cannot be written (a full disk) is dropped, counted and
    announced at once by a warning; `close` raises `ReportsDroppedError` once for all of them. In a forked child every
    `append` raises `JournalForkedError`.
    """

    def __init__(self, path: Path, *, fsync_interval_s: float = 1.0) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = _above_standard_streams(os.open(path, flags, 0o600))
        fsync_directory(path.parent)
        self._is_dirty = False
        self._num_dropped = 0
        self._num_unannounced = 0
        self._drop_reason = ""
        # Reentrant: a signal handler that reports may interrupt a report of its own thread.
        self._drop_lock = threading.RLock()
        self._closing = threading.Event()
        self._fsync_thread = threading.Thread(
            target=self._fsync_while_dirty, args=(fsync_interval_s,), name="core-sdk-fsync", daemon=True
        )
        self._fsync_thread.start()
        _tell_forked_child(self)

    def append(self, record: Record) -> None:
        line = encode_line(record)
        if self._num_unannounced:
            line = self._announcement() + line
        try:
            num_written = os.write(self._descriptor, line)
        except OSError as error:
            self._drop(error, num_written=0)
            return
        if num_written != len(line):
            self._drop(None, num_written)
            return
        self._is_dirty = True
        if self._num_unannounced:
            self._recovered()

    def append_or_raise(self, record: Record) -> None:
        """For a record without which the others mean something else: `OSError` where `append` would drop it."""
        line = encode_line(record)
        if os.write(self._descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._is_dirty = True

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
        if self._num_unannounced:
            self._write_last_announcement()
        self._fsync()
        descriptor, self._descriptor = self._descriptor, _CLOSED
        os.close(descriptor)
        if self._num_dropped:
            raise ReportsDroppedError(self.path, self._num_dropped, self._drop_reason)

    def _drop(self, error: OSError | None, num_written: int) -> None:
        self.check_open()
        with self._drop_lock:
            if num_written:
                # The half line must go, or it would spoil the next one. Nobody else writes to this file.
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - num_written)
            is_first = self._num_dropped == 0
            self._num_dropped += 1
            self._num_unannounced += 1
            self._drop_reason = str(error) if error else "the disk is full"
        if is_first:
            message = f"records are being dropped, training goes on: {self._drop_reason} ({self.path})"
            logger.error(message)
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _announcement(self) -> bytes:
        return encode_line(Dropped(time=time.time(), count=self._num_unannounced, reason=self._drop_reason))

    def _recovered(self) -> None:
        with self._drop_lock:
            num_dropped, self._num_unannounced = self._num_unannounced, 0
        logger.error("%s can be written again; %d records were dropped", self.path, num_dropped)

    def _write_last_announcement(self) -> None:
        try:
            os.write(self._descriptor, self._announcement())
        except OSError as error:
            logger.error("the number of dropped records could not be written to %s: %s", self.path, error)

    def _fsync_while_dirty(self, interval_s: float) -> None:
        while not self._closing.wait(interval_s):
            if self._is_dirty:
                self._is_dirty = False
                self._fsync()

    def _fsync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # After a failed fsync the kernel may have forgotten the pages: a second success would prove nothing.
            logger.error("the disk may lose the latest records of %s in a power cut: %s", self.path, error)

    def _forget_in_child(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = _FORKED
            self._num_unannounced = 0


def _above_standard_streams(descriptor: int) -> int:
    """Where a process has no standard streams, C code that prints would print into the first files opened."""
    if descriptor > _STDERR:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    finally:
        os.close(descriptor)


def _tell_forked_child(journal: JournalWriter) -> None:
    reference = weakref.ref(journal)

    def after_in_child() -> None:
        if (inherited := reference()) is not None:
            inherited._forget_in_child()

    os.register_at_fork(after_in_child=after_in_child)
