"""The journal of a rank other than the chief. It holds its reports, its progress and the figures of its machine."""

from __future__ import annotations

import logging
from pathlib import Path

from core_sdk._ground.records import (
    Alert,
    AttemptStarted,
    EarlyExit,
    MetadataSet,
    Profile,
    ProgressReported,
    Record,
    Report,
    StatusSet,
)
from core_sdk._home.journal._late_writer import JournalBeside, LateWriter

logger = logging.getLogger("core_sdk.journal")

_KEPT = (Profile, ProgressReported, Report)
_OF_CHIEF = (Alert, EarlyExit, MetadataSet, StatusSet)


class RankJournal(JournalBeside):
    """Keeps reports, profiles and progress, in a file that is made with the first of them.

    It warns once if a script reports something that only the chief records. It silently ignores what the chief records
    for all ranks.
    """

    def __init__(self, path: Path, start: AttemptStarted, *, is_kept: bool) -> None:
        """`start` becomes the file's first record. Without `is_kept` there is no file: nobody would read it."""
        self._writer = LateWriter(path, start, f"rank {start.rank}", is_continued=False)
        super().__init__(path)
        self._rank = start.rank
        self.is_kept = is_kept
        self._said: set[str] = set()

    def append_under_lock(self, record: Record) -> None:
        self.check_open()
        if isinstance(record, _OF_CHIEF):
            self._warn_once("told what is not recorded: only rank 0 records status, metadata, alerts and an early exit")
        elif not isinstance(record, _KEPT):
            return
        elif not self.is_kept:
            self._warn_once("keeps no reports, no progress and no figures: its node does not see the home of rank 0")
        else:
            self._writer.append(record)

    def keep_file(self, name: str, content: bytes) -> str:
        self.check_open()
        if not self.is_kept:
            return ""
        with self.lock:
            return self._writer.keep_file(name, content)

    def _close(self) -> None:
        self._writer.close()

    def _warn_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            logger.warning("rank %d %s (said once)", self._rank, what)
