"""The seam: where a process records what happens in its attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from core_sdk.records import Record


class Journal(ABC):
    """`append` may be called from any thread; in a forked child it raises `JournalForkedError`."""

    path: Path

    @abstractmethod
    def append(self, record: Record) -> None:
        """Returns when the record is in the kernel's hands: no death of the process can lose it."""

    @abstractmethod
    def append_or_raise(self, record: Record) -> None:
        """For a record without which others mean something else: `OSError` where `append` would drop it."""

    @abstractmethod
    def check_open(self) -> None:
        """Raises what `append` would: for what must not be done if it cannot be recorded."""

    @abstractmethod
    def close(self) -> None:
        """Does nothing the second time. Raises `ReportsDroppedError` if records were lost."""
