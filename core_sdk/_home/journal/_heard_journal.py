"""A journal with a listener."""

from __future__ import annotations

from collections.abc import Callable

from core_sdk._ground.records import Record
from core_sdk._home.journal._journal import Journal


class HeardJournal(Journal):
    """Writes into another journal, and calls `hear` with each record after it was written."""

    def __init__(self, journal: Journal, hear: Callable[[Record], None]) -> None:
        super().__init__(journal.path)
        self.lock = journal.lock
        self._journal = journal
        self._hear = hear

    def append_under_lock(self, record: Record) -> None:
        self._journal.append_under_lock(record)
        self._hear(record)

    def append_or_raise(self, record: Record) -> None:
        self._journal.append_or_raise(record)
        self._hear(record)

    def keep_file(self, name: str, content: bytes) -> str:
        return self._journal.keep_file(name, content)

    def check_open(self) -> None:
        self._journal.check_open()

    def close(self) -> None:
        self._journal.close()
