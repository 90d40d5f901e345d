"""Looks at stored checkpoints: at each once, with every storage opened once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core_sdk.errors import CheckpointError, CheckpointNotFoundError, MissingDependencyError, StorageError
from core_sdk.storage import DirectoryStorage, Storage, storage_from_url

Presence = Literal["present", "missing", "unreachable"]

UNREACHABLE = (StorageError, MissingDependencyError, OSError)
"""Errors that say nothing of a checkpoint, only that its storage cannot be asked."""


@dataclass(frozen=True)
class Look:
    presence: Presence
    size_bytes: int = 0


class Inspector:
    """Does not ask a storage again that could not be reached."""

    def __init__(self, storages: Sequence[Storage] = ()) -> None:
        """`storages` are open already, with credentials that the environment may not have, and stay open."""
        self._opened = contextlib.ExitStack()
        self._storages = {storage.url: storage for storage in storages}
        self._looks: dict[str, Look] = {}
        self._is_good: dict[str, bool] = {}
        self.problems: dict[str, str] = {}
        """Storage -> why it cannot be reached."""

    def close(self) -> None:
        self._opened.close()

    def storage(self, url: str) -> Storage:
        """Raises one of `UNREACHABLE`, or `UnknownStorageError`."""
        if url not in self._storages:
            self._storages[url] = self._opened.enter_context(contextlib.closing(storage_from_url(url)))
        return self._storages[url]

    def look(self, url: str, storage_id: str) -> Look:
        """Whether the checkpoint is there, damaged or not."""
        if url in self.problems:
            return Look("unreachable")
        if storage_id not in self._looks:
            try:
                self._looks[storage_id] = self._look(url, storage_id)
            except UNREACHABLE as error:
                self.note_problem(url, error)
                return Look("unreachable")
        return self._looks[storage_id]

    def _look(self, url: str, storage_id: str) -> Look:
        storage = self.storage(url)
        if isinstance(storage, DirectoryStorage) and not storage.root.is_dir():
            raise FileNotFoundError(f"{storage.root} is not there; is its file system mounted?")
        try:
            return Look("present", sum(storage.manifest(storage_id).resources.values()))
        except CheckpointNotFoundError:
            return Look("missing")
        except StorageError:
            raise
        except CheckpointError:
            return Look("present")

    def is_good(self, url: str, storage_id: str) -> bool:
        """Whether a trial could resume from it: it is whole, and none of its files was deleted on purpose."""
        if storage_id not in self._is_good and url not in self.problems:
            try:
                self._is_good[storage_id] = self._check(url, storage_id)
            except UNREACHABLE as error:
                self.note_problem(url, error)
        return self._is_good.get(storage_id, False)

    def sweep(self) -> None:
        """Removes what dead processes left in the storages that were looked at."""
        for url, storage in self._storages.items():
            if url not in self.problems:
                try:
                    storage.sweep()
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
