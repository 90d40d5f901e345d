"""A storage in a directory whose steps can be held, for as long as a test needs to look at what goes on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import wait_for

from core_sdk import core
from core_sdk._ground.records import Manifest
from core_sdk._home.storage import DirectoryStorage, Shard, ShardUnion, Staging
from core_sdk._home.storage._staging_area import LockedDirectory
from core_sdk._home.storage.directory._staging import DirectoryStaging
from core_sdk.errors import CheckpointNotStoredError


class Gate:
    """A gate made of two files: arriving creates the first, and passing waits for the second."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self._reached = folder / f"{name}.reached"
        self._opened = folder / f"{name}.opened"
        self._refused = folder / f"{name}.refused"
        self._is_cancelled = False
        self.cuts_short = True
        """What is cancelled fails; else it goes on at once."""
        self.thread_id = 0
        """The system's number of the thread that has arrived."""

    def wait_until_reached(self) -> None:
        wait_for(self._reached.exists)

    def is_reached(self) -> bool:
        return self._reached.exists()

    def open(self) -> None:
        self._opened.touch()

    def refuse(self) -> None:
        """Makes every arrival at the gate fail."""
        self._refused.touch()
        self._opened.touch()

    def pass_through(self, storage_id: str) -> None:
        self.thread_id = threading.get_native_id()
        self._reached.touch()
        wait_for(lambda: self._opened.exists() or self._is_cancelled)
        if self._is_cancelled:
            raise CheckpointNotStoredError(storage_id, "a held storage", "it was cancelled")
        if self._refused.exists():
            raise CheckpointNotStoredError(storage_id, "a held storage", "it was refused")

    def cancel(self) -> None:
        if self.cuts_short:
            self._is_cancelled = True
        else:
            self.open()


class HeldStorage(DirectoryStorage):
    """A directory storage whose saves wait at a gate before `step`."""

    def __init__(self, root: Path, gate: Gate, step: str = "commit") -> None:
        super().__init__(root)
        self.gate = gate
        self._step = step

    def stage(self, storage_id: str, *, is_shared: bool = False) -> Staging:
        return _HeldStaging(self.root, self._area.new_directory(), storage_id, self.gate, self._step)


class _HeldStaging(DirectoryStaging):
    def __init__(self, root: Path, locked: LockedDirectory, storage_id: str, gate: Gate, step: str) -> None:
        super().__init__(root, locked, storage_id)
        self._gate = gate
        self._step = step

    def seal(self) -> Shard:
        self._hold("seal")
        return super().seal()

    def contribute(self, names: Sequence[str], address: str) -> None:
        self._hold("contribute")
        super().contribute(names, address)

    def commit(self, union: ShardUnion, metadata: Mapping[str, Any]) -> Manifest:
        self._hold("commit")
        return super().commit(union, metadata)

    def cancel(self) -> None:
        self._gate.cancel()
        if self._gate.cuts_short:
            super().cancel()

    def _hold(self, step: str) -> None:
        if step == self._step:
            self._gate.pass_through(self._storage_id)


def hold(context: core.Context, gate: Gate, step: str = "commit") -> None:
    """Makes the saves of this Context wait at the gate before `step`."""
    storage = context.checkpoint._storage
    assert isinstance(storage, DirectoryStorage)
    context.checkpoint._storage = HeldStorage(storage.root, gate, step)
