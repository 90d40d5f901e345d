"""The journal of a rank other than the chief. It holds its reports, its progress and the figures of its machine."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from core_sdk.errors import JournalClosedError, JournalForkedError, ReportsDroppedError
from core_sdk.journal._journal import Journal
from core_sdk.journal._writer import JournalWriter
from core_sdk.records import (
    Alert,
    AttemptStarted,
    Dropped,
    EarlyExit,
    MetadataSet,
    Profile,
    ProgressReported,
    Record,
    Report,
    StatusSet,
)

logger = logging.getLogger("core_sdk.journal")

_KEPT = (Profile, ProgressReported, Report)
_OF_CHIEF = (Alert, EarlyExit, MetadataSet, StatusSet)


class RankJournal(Journal):
    """Keeps reports, profiles and progress, in a file that is made with the first of them.

    It warns once if a script reports something that only the chief records. It silently ignores what the chief records
    for all ranks.
    """

    def __init__(self, locate: Callable[[], Path], start: AttemptStarted, *, is_kept: bool) -> None:
        """`locate` gives the path, and raises `OSError` if there can be none. `start` becomes the file's first record.

        Without `is_kept` there is no file: nobody would read it.
        """
        super().__init__(locate())
        self._locate = locate
        self._start = start
        self._is_kept = is_kept
        self._process = os.getpid()
        self._is_closed = False
        self._said: set[str] = set()
        self._writer: JournalWriter | None = None
        self._problem: OSError | None = None
        self._num_lost = 0

    def append_under_lock(self, record: Record) -> None:
        self.check_open()
        if isinstance(record, _OF_CHIEF):
            self._warn_once("told what is not recorded: status, metadata, alerts and an early exit are those of rank 0")
        elif not isinstance(record, _KEPT):
            return
        elif not self._is_kept:
            self._warn_once("keeps no reports, no progress and no figures: its node does not see the home of rank 0")
        else:
            self._keep(record)

    def append_or_raise(self, record: Record) -> None:
        """Appends a record as `append` does, and may drop it: nothing depends on the records of this rank."""
        self.append(record)

    def keep_file(self, name: str, content: bytes) -> str:
        self.check_open()
        if not self._is_kept:
            return ""
        with self.lock:
            writer = self._writer_or_none()
        return str(self._problem) if writer is None else writer.keep_file(name, content)

    def check_open(self) -> None:
        if self._is_closed:
            raise JournalClosedError(self.path)
        if os.getpid() != self._process:
            raise JournalForkedError(self.path)

    def close(self) -> None:
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        if self._writer is not None:
            self._writer.close()
        if self._problem is not None:
            raise ReportsDroppedError(self.path, self._num_lost, self._problem)

    def _keep(self, record: Record) -> None:
        if (writer := self._writer_or_none()) is not None:
            writer.append(record)

    def _writer_or_none(self) -> JournalWriter | None:
        """Returns the writer, which is opened when it is first needed; None if the disk refuses its file."""
        if self._writer is None:
            try:
                self._writer = self._open()
            except OSError as error:
                self._lose(error)
        return self._writer

    def _open(self) -> JournalWriter:
        self.path = self._locate()
        writer = JournalWriter(self.path)
        try:
            writer.append_or_raise(self._start)
            if self._num_lost:
                lost = Dropped(time=time.time(), count=self._num_lost, reason=str(self._problem))
                writer.append_or_raise(lost)
        except OSError:
            writer.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise
        return writer

    def _lose(self, error: OSError) -> None:
        """Counts a record that cannot be kept, and warns of the first one; the training goes on."""
        self._num_lost += 1
        if self._problem is None:
            message = f"records of rank {self._start.rank} are not kept, training goes on: {error}"
            logger.error(message)
            warnings.warn(message, RuntimeWarning, stacklevel=6)
        self._problem = error

    def _warn_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            logger.warning("rank %d %s (said once)", self._start.rank, what)
