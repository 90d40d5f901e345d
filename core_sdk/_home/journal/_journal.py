"""The interface through which a process records what happens in its attempt."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from pathlib import Path

from core_sdk._ground.records import Record


class Journal(ABC):
    """The record of what happens in an attempt, as one rank writes it.

    `append` may be called from any thread; in a forked child it raises `JournalError`.
    """

    is_kept = True
    """Whether what is appended gets into a file, here or at home."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()
        """Held while a record is written. A caller that holds it keeps other threads from writing.

        It is reentrant: a signal handler that reports may interrupt a report of its own thread.
        """
        _tell_forked_child(self)

    def append(self, record: Record) -> None:
        """Appends a record. When it returns, the kernel has the record, so that no death of the process can lose it."""
        with self.lock:
            self.append_under_lock(record)

    @abstractmethod
    def append_under_lock(self, record: Record) -> None:
        """Appends a record as `append` does, for a caller that holds `lock`."""

    @abstractmethod
    def append_or_raise(self, record: Record) -> None:
        """Appends a record on which others depend: raises `OSError` where `append` would drop it."""

    @abstractmethod
    def keep_file(self, name: str, content: bytes) -> str:
        """Keeps a file that later records name. Its name, relative to the journal, tells its content.

        When it returns, no death of the process can lose the file. Returns the reason if it could not be written, which
        counts as a dropped record, and otherwise an empty text.
        """

    @abstractmethod
    def check_open(self) -> None:
        """Raises the error that `append` would raise. Called before an action that must be recorded."""

    @abstractmethod
    def close(self) -> None:
        """Closes the journal; does nothing the second time. Raises `ReportsDroppedError` if records were lost."""

    def _forget_in_child(self) -> None:
        """Makes a new lock: a thread of the parent that held the old one does not exist in the child."""
        self.lock = threading.RLock()


def _tell_forked_child(journal: Journal) -> None:
    reference = weakref.ref(journal)

    def after_in_child() -> None:
        if (inherited := reference()) is not None:
            inherited._forget_in_child()

    os.register_at_fork(after_in_child=after_in_child)
