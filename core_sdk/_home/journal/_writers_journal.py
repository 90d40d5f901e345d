"""The journal of a writer: a program that reports about a trial next to the trial's own ranks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Alert, AttemptStarted, Dropped, Ended, Profile, Record, Report, StopAcknowledged
from core_sdk._home.journal._late_writer import JournalBeside, LateWriter

logger = logging.getLogger("core_sdk.journal")

_KEPT = (Alert, Dropped, Profile, Report, StopAcknowledged)


class WritersJournal(JournalBeside):
    """Keeps reports, profiles, alerts and the writer's end, in a file for each attempt of which the writer tells.

    A later process of the same writer appends to the same files. What only the trial's own program may tell is left
    out, which a warning says once.
    """

    def __init__(
        self,
        name: str,
        alive: AliveLock | None,
        path_of: Callable[[int], Path],
        start: Callable[[int], AttemptStarted],
        attempt: int,
    ) -> None:
        """`alive` is held by this process as long as it writes; without it nothing is kept, as on ranks other than 0.

        `path_of` and `start` give the file of an attempt, and its next record. `attempt` is the one to begin with.
        """
        super().__init__(path_of(attempt))
        self.attempt = attempt
        """The attempt of which the next report tells. The lock must be held to change it."""
        self._name = name
        self._alive = alive
        self._path_of = path_of
        self._start = start
        self._has_warned = False
        self._writers: dict[int, LateWriter] = {}
        if alive is not None:
            self._writer()  # so that the writer is seen before it reports anything

    def append_under_lock(self, record: Record) -> None:
        self.check_open()
        if self._alive is None:
            return
        if isinstance(record, Ended):
            for writer in self._writers.values():
                writer.append(record)
        elif isinstance(record, _KEPT):
            self._writer().append(record)
        elif not self._has_warned:
            self._has_warned = True
            logger.warning(
                "writer %r told what is not recorded: only the trial's own program records status, "
                "progress, metadata and an early exit (said once)",
                self._name,
            )

    def keep_file(self, name: str, content: bytes) -> str:
        self.check_open()
        if self._alive is None:
            return ""
        with self.lock:
            return self._writer().keep_file(name, content)

    def _close(self) -> None:
        with contextlib.ExitStack() as closing:  # all are closed, also if one of them raises
            if self._alive is not None:
                closing.callback(self._alive.release)
            for writer in self._writers.values():
                closing.callback(writer.close)

    def _writer(self) -> LateWriter:
        if (known := self._writers.get(self.attempt)) is not None:
            return known
        attempt = self.attempt
        writer = LateWriter(self._path_of(attempt), self._start(attempt), f"writer {self._name!r}", is_continued=True)
        self._writers[attempt] = writer
        if (opened := writer.writer_or_none()) is not None:
            opened.alive = self._alive
        self.path = writer.path
        return writer
