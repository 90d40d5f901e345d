"""Writes a journal."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from core_sdk._ground.alive import AliveLock, once_free
from core_sdk._ground.descriptors import KeptDescriptor
from core_sdk._ground.files import (
    cut_short,
    explained,
    fsync_directory,
    opened,
    opened_regular,
    write_atomically,
    write_whole,
)
from core_sdk._ground.ownership import give_to_owner_of, make_directory
from core_sdk._ground.records import Dropped, Ended, Record
from core_sdk._home.journal._journal import Journal
from core_sdk._home.journal._line import encode_line
from core_sdk.errors import JournalError, ReportsDroppedError

logger = logging.getLogger("core_sdk.journal")

_CLOSED = -1
_FORKED = -2
_LOST = -3
_TAIL_BYTES = 64 << 10
# How long a process may take to end after it has forked a daemon.
_ENDING_S = 1.0
_OF_DAEMON = (
    "the script has made itself a daemon after init(), and what it reports is refused: call init() in the daemon, "
    "after the last fork"
)


class JournalWriter(Journal):
    """Creates the journal and appends to it; `FileExistsError` if the file is there already.

    With `is_continued` it appends to what an earlier process has written, if there is anything.

    `append` may be called from any thread. A record that cannot be written (a full disk) is dropped, counted and
    announced at once by a warning; `close` raises `ReportsDroppedError` once for all of them. In a forked child every
    `append` raises `JournalError`.

    A script may close our descriptor, and somebody may move or remove the file. So once a second the writer looks
    whether its descriptor still belongs to the file at its path. It opens a closed one again, and counts as dropped
    what was written since the last look and is not there.
    """

    def __init__(self, path: Path, *, is_continued: bool = False, fsync_interval_s: float = 1.0) -> None:
        # Readable, so that the writer can see where half a line begins.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_NOFOLLOW if is_continued else os.O_EXCL)
        self._file = KeptDescriptor(os.open(path, flags, 0o600))
        self._descriptor = self._file.fileno()
        give_to_owner_of(path.parent, path, self._descriptor)
        if is_continued:
            self._cut_half_line()
        fsync_directory(path.parent)
        self._is_writing = False
        self._num_unverified = 0
        """The number of records that were written since the last look at the file."""
        self._verified_bytes = os.fstat(self._descriptor).st_size
        """The size of the file at the last look."""
        self._session = os.getsid(0)
        self._has_told = False
        self._lost: OSError | None = None
        """The loss of the file, if it is no longer there."""
        self._num_dropped = 0
        self._num_unannounced = 0
        self._drop_error = OSError()
        self.alive: AliveLock | None = None
        """The lock of this process, which is taken again if the script closes it."""
        self._unsynced: list[Path] = []
        """Files that were kept since the last fsync."""
        self._closing = threading.Event()
        self._fsync_thread = threading.Thread(
            target=self._fsync_while_dirty, args=(fsync_interval_s,), name="core-sdk-fsync", daemon=True
        )
        self._fsync_thread.start()
        super().__init__(path)

    def append_under_lock(
        self,
        record: Record,
        encode: Callable[[Record], bytes] = encode_line,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        if self._is_writing or self._num_unannounced:
            self._append(record)
            return
        # What nearly every record needs stands here in full, since a report that comes between two steps of a training
        # finds none of it in the processor's caches. Names of the function are found faster than those of modules.
        line = encode(record)
        is_whole, self._is_writing = False, True
        refusal: OSError | None = None
        try:
            is_whole = write(self._descriptor, line) == len(line)
            if not is_whole:
                refusal = cut_short(self._descriptor)
        except OSError as error:
            refusal = explained(error)
        finally:
            self._is_writing = False
            if not is_whole:
                self._cut_half_line()
        if refusal is None:
            self._num_unverified += 1
        else:
            self._heed_refusal(record, refusal)

    def _append(self, record: Record) -> None:
        try:
            self._write(record)
        except OSError as error:
            self._heed_refusal(record, error)

    def append_or_raise(self, record: Record) -> None:
        with self.lock:
            self.check_open()
            self._verify()
            if self._lost is not None:
                raise self._lost
            self._write(record)

    def keep_file(self, name: str, content: bytes) -> str:
        with self.lock:
            self.check_open()
            self._verify()
        path = self.path.parent / name
        if _has_size(path, len(content)):
            return ""
        try:
            make_directory(path.parent, exist_ok=True)
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
            raise JournalError.closed(self.path)
        if self._descriptor == _FORKED:
            self._tell_of_daemon()
            raise JournalError.forked(self.path)

    def close(self) -> None:
        """Fsyncs and closes; does nothing the second time. Raises `ReportsDroppedError` if records were lost."""
        if self._descriptor in (_CLOSED, _FORKED):
            return
        self._closing.set()
        self._fsync_thread.join(timeout=10)
        with self.lock:
            self._verify()
            if self._lost is None:
                if self._num_unannounced:
                    self._announce_at_last()
                self._fsync()
            self._descriptor = _CLOSED
            self._file.close()
        if self._num_dropped:
            raise ReportsDroppedError(self.path, self._num_dropped, self._drop_error)

    def _write(self, record: Record) -> None:
        """Writes a whole line, or raises `OSError` and leaves nothing of it. The lock must be held."""
        line = encode_line(record)
        if self._num_unannounced:
            self._announce()
        # Only a signal handler can interrupt a write of its own thread, which may then have left half a line.
        is_nested, self._is_writing = self._is_writing, True
        try:
            if is_nested:
                self._cut_half_line()
            write_whole(self._descriptor, line)
        except BaseException:
            self._cut_half_line()
            raise
        finally:
            self._is_writing = is_nested
        self._num_unverified += 1

    def _heed_refusal(self, record: Record, error: OSError) -> None:
        """Writes a record that was refused once more if the script has closed our descriptor; drops it otherwise."""
        self.check_open()
        if self._descriptor >= 0 and not self._file.is_ours():
            self._verify()
            try:
                self._write(record)
                return
            except OSError as last_error:
                error = last_error
        self._drop(self._lost or error)

    def _verify(self) -> None:
        """Makes sure that records get into the journal, which may be gone. The lock must be held."""
        if self._descriptor < 0:
            return
        num_written, self._num_unverified = self._num_unverified, 0
        try:
            if not self._file.is_at(self.path):
                raise FileNotFoundError(
                    errno.ENOENT, "the file or its home was renamed or removed while the training ran", str(self.path)
                )
            if not self._file.is_ours():
                self._file.open_again(self.path, os.O_RDWR | os.O_APPEND)
                self._descriptor = self._file.fileno()
                if missing := num_written - self._num_lines_since(self._verified_bytes):
                    self._drop(OSError(errno.EBADF, "the script closed the journal, and wrote to its number"), missing)
            self._verified_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            self._descriptor, self._lost = _LOST, error
            if num_written:
                self._drop(error, num_written)

    def _num_lines_since(self, offset: int) -> int:
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(offset)
            return sum(1 for _ in file)

    def _drop(self, error: OSError, count: int = 1) -> None:
        is_first = self._num_dropped == 0
        self._num_dropped += count
        self._num_unannounced += count
        self._drop_error = error
        if is_first:
            message = f"records are being dropped, training goes on: {self._drop_error} ({self.path})"
            logger.error(message)
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    def _announce(self) -> None:
        """Records how many records could not be written; `OSError` if this cannot be written either."""
        count, self._num_unannounced = self._num_unannounced, 0
        try:
            self._write(Dropped(time=time.time(), count=count, reason=str(self._drop_error)))
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
            if self.alive is not None:
                self.alive.take_again()
            if self._num_unverified:
                with self.lock, contextlib.suppress(RuntimeWarning):  # a script may turn warnings into errors
                    self._verify()
                if self._lost is None:
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
            os.fsync(self._file.checked())
        except OSError as error:
            # After a failed fsync the kernel may have forgotten the pages: a second success would prove nothing.
            logger.error("the disk may lose the latest records of %s in a power cut: %s", self.path, error)

    def _forget_in_child(self) -> None:
        super()._forget_in_child()
        if self._descriptor != _CLOSED:
            self._file.close()
            self._descriptor = _FORKED
            self._num_unannounced = 0

    def _tell_of_daemon(self) -> None:
        """Records that reports are refused, if the script has made itself a daemon: its own words are seen by nobody.

        A worker of a script is in the script's session. While the process that called `init()` lives, nothing is
        recorded.
        """
        if self._has_told or os.getsid(0) == self._session:
            return
        self._has_told = True
        with contextlib.suppress(OSError):
            lock = once_free(lambda: AliveLock(self.path.with_suffix(".alive")), _ENDING_S)
            with opened(self.path, os.O_WRONLY | os.O_APPEND) as descriptor:
                os.write(descriptor, encode_line(Ended(time=time.time(), outcome="error", error=_OF_DAEMON)))
            lock.release()

    def _cut_half_line(self) -> None:
        if self._file.is_ours():
            _cut_half_line(self._descriptor)


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
