"""Journals besides the attempt's own: their files are made when the first record comes."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from abc import abstractmethod
from pathlib import Path

from core_sdk._ground.records import AttemptStarted, Dropped, Record
from core_sdk._home.journal._journal import Journal
from core_sdk._home.journal._writer import JournalWriter
from core_sdk.errors import JournalError, ReportsDroppedError

logger = logging.getLogger("core_sdk.journal")


class LateWriter:
    """Makes the file with the first record. If the disk refuses it, records are dropped and counted.

    The lock of the journal to which it belongs must be held in every call but `close`.
    """

    def __init__(self, path: Path, start: AttemptStarted, who: str, *, is_continued: bool) -> None:
        """`start` is the first record to write. `who` keeps the journal, in words.

        With `is_continued` the file may be there.
        """
        self.path = path
        self._start = start
        self._who = who
        self._is_continued = is_continued
        self._writer: JournalWriter | None = None
        self._problem: OSError | None = None
        self._num_lost = 0

    def append(self, record: Record) -> None:
        if (writer := self.writer_or_none()) is not None:
            writer.append(record)

    def keep_file(self, name: str, content: bytes) -> str:
        writer = self.writer_or_none()
        return str(self._problem) if writer is None else writer.keep_file(name, content)

    def writer_or_none(self) -> JournalWriter | None:
        """Returns the writer, which is opened when it is first needed; None if the disk refuses its file."""
        if self._writer is None:
            try:
                self._writer = self._open()
            except OSError as error:
                self._lose(error)
        return self._writer

    def close(self) -> None:
        """Closes the journal. Raises `ReportsDroppedError` if records were lost."""
        if self._writer is not None:
            self._writer.close()
        if self._problem is not None:
            raise ReportsDroppedError(self.path, self._num_lost, self._problem)

    def _open(self) -> JournalWriter:
        writer = JournalWriter(self.path, is_continued=self._is_continued)
        try:
            writer.append_or_raise(self._start)
            if self._num_lost:
                lost = Dropped(time=time.time(), count=self._num_lost, reason=str(self._problem))
                writer.append_or_raise(lost)
        except OSError:
            writer.close()
            with contextlib.suppress(OSError):
                if self.path.stat().st_size == 0:  # not what an earlier process has written
                    self.path.unlink()
            raise
        return writer

    def _lose(self, error: OSError) -> None:
        """Counts a record that cannot be kept, and warns of the first one; the training goes on."""
        self._num_lost += 1
        if self._problem is None:
            message = f"records of {self._who} are not kept, training goes on: {error}"
            logger.error(message)
            warnings.warn(message, RuntimeWarning, stacklevel=7)
        self._problem = error


class JournalBeside(Journal):
    """A journal on whose records nothing depends: it may drop them where the attempt's journal would raise."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._process = os.getpid()
        self._is_closed = False

    def append_or_raise(self, record: Record) -> None:
        """Appends a record as `append` does, and may drop it."""
        self.append(record)

    def check_open(self) -> None:
        if self._is_closed:
            raise JournalError.closed(self.path)
        if os.getpid() != self._process:
            raise JournalError.forked(self.path)

    def close(self) -> None:
        if not self._is_closed and os.getpid() == self._process:
            self._is_closed = True
            self._close()

    @abstractmethod
    def _close(self) -> None:
        """Closes the files. Raises `ReportsDroppedError` if records were lost."""
