"""Inspects stored checkpoints, each of them only once, and opens every storage only once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from core_sdk._home.storage import DirectoryStorage, Storage, storage_from_url
from core_sdk.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointProtectedError,
    MissingDependencyError,
    StorageError,
)

Presence = Literal["present", "missing", "unreachable"]

UNREACHABLE = (StorageError, MissingDependencyError, OSError)
"""Errors that mean that a storage cannot be reached. They say nothing about the checkpoints in it."""


@dataclass(frozen=True)
class Inspection:
    presence: Presence
    size_bytes: int = 0


class Inspector:
    """Inspects checkpoints in their storages. A storage that could not be reached is not tried again."""

    def __init__(self, storages: Sequence[Storage] = ()) -> None:
        """`storages` are open already, with credentials that the environment may not have, and stay open."""
        self._opened = contextlib.ExitStack()
        self._storages = {storage.url: storage for storage in storages}
        self._looks: dict[str, Inspection] = {}
        self._is_good: dict[str, bool] = {}
        self.problems: dict[str, str] = {}
        """The reasons for which storages cannot be reached, by URL."""

    def close(self) -> None:
        self._opened.close()

    def storage(self, url: str) -> Storage:
        """Returns the storage of this URL, opened. Raises one of `UNREACHABLE`, or `UnknownStorageError`."""
        if url not in self._storages:
            self._storages[url] = self._opened.enter_context(contextlib.closing(storage_from_url(url)))
        return self._storages[url]

    def look(self, url: str, storage_id: str) -> Inspection:
        """Returns whether the checkpoint is there, damaged or not, and its size."""
        if url in self.problems:
            return Inspection("unreachable")
        if storage_id not in self._looks:
            try:
                self._looks[storage_id] = self._look(url, storage_id)
            except UNREACHABLE as error:
                self.note_problem(url, error)
                return Inspection("unreachable")
        return self._looks[storage_id]

    def _look(self, url: str, storage_id: str) -> Inspection:
        storage = self.storage(url)
        if isinstance(storage, DirectoryStorage) and not storage.root.is_dir():
            raise FileNotFoundError(f"{storage.root} is not there; is its file system mounted?")
        try:
            return Inspection("present", sum(storage.manifest(storage_id).resources.values()))
        except CheckpointNotFoundError:
            return Inspection("missing")
        except StorageError:
            raise
        except CheckpointError:
            return Inspection("present")

    def is_good(self, url: str, storage_id: str) -> bool:
        """Returns whether a trial could resume from it: it is intact, and no file of it was deleted on purpose."""
        if storage_id not in self._is_good and url not in self.problems:
            try:
                self._is_good[storage_id] = self._check(url, storage_id)
            except UNREACHABLE as error:
                self.note_problem(url, error)
        return self._is_good.get(storage_id, False)

    def is_read(self, url: str, storage_id: str) -> bool:
        """Returns whether a process reads the checkpoint now."""
        if url in self.problems:
            return False
        try:
            with self.storage(url).deleting(storage_id):
                return False
        except CheckpointProtectedError:
            return True
        except UNREACHABLE as error:
            self.note_problem(url, error)
            return False

    def sweep(self, urls: Iterable[str] = ()) -> None:
        """Removes leftovers of dead processes from the storages that were opened, and from those at `urls`."""
        for url in dict.fromkeys((*self._storages, *urls)):
            if url not in self.problems:
                try:
                    self.storage(url).sweep()
                except UNREACHABLE as error:
                    self.note_problem(url, error)

    def _check(self, url: str, storage_id: str) -> bool:
        try:
            return not self.storage(url).check(storage_id).removed
        except StorageError:
            raise
        except CheckpointError:
            return False

    def note_problem(self, url: str, error: Exception) -> None:
        self.problems[url] = str(error)
