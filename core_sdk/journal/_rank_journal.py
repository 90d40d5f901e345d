"""The journal of a rank other than the chief: the chief speaks for all, but each has its own machine and progress."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from core_sdk.errors import JournalClosedError, JournalForkedError
from core_sdk.journal._journal import Journal
from core_sdk.journal._writer import JournalWriter
from core_sdk.records import AttemptStarted, CheckpointStored, Ended, Profile, Progress, Record, StopAcknowledged

logger = logging.getLogger("core_sdk.journal")

_KEPT = (Profile, Progress)
# The chief records them once, for all.
_COMMON = (CheckpointStored, Ended, StopAcknowledged)


class RankJournal(Journal):
    """Keeps profiles and progress, in a file that is made with the first of them; of all else it says once that it
    does not keep it.
    """

    def __init__(self, path: Path, start: AttemptStarted, *, is_home_shared: bool) -> None:
        """Without a shared home nothing is kept."""
        self.path = path
        self._start = start
        self._is_home_shared = is_home_shared
        self._process = os.getpid()
        self._is_closed = False
        self._has_spoken = False
        self._guard = threading.Lock()
        self._writer: JournalWriter | None = None

    def append(self, record: Record) -> None:
        self.check_open()
        if isinstance(record, _KEPT) and self._is_home_shared:
            self._kept().append(record)
        elif not isinstance(record, _COMMON):
            self._say_once()

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

    def _kept(self) -> JournalWriter:
        if self._writer is None:
            with self._guard:
                if self._writer is None:
                    writer = JournalWriter(self.path)
                    writer.append_or_raise(self._start)
                    self._writer = writer
        return self._writer

    def _say_once(self) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            logger.info(
                "rank %d records nothing of its own: what rank 0 reports counts for all ranks (said once)",
                self._start.rank,
            )
