"""Ranks of one trial as threads, each with a checkpoint context of its own."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from distributed.ranks import Outcomes, place, together
from processes import TIMEOUT_S

from core_sdk._ground.records import CheckpointBegun, Record
from core_sdk._home.journal import JournalWriter, read_records
from core_sdk._home.storage import DirectoryStorage, Storage
from core_sdk.core import CheckpointContext, DistributedContext

T = TypeVar("T")


@dataclass
class Rank:
    """The objects that the script of one rank works with."""

    number: int
    distributed: DistributedContext
    checkpoint: CheckpointContext


class Trial:
    """Runs scripts on several ranks, as often as one likes; each rank opens the storage for itself."""

    def __init__(self, folder: Path, num_ranks: int, num_nodes: int = 1) -> None:
        self.num_ranks = num_ranks
        self.storage = DirectoryStorage(folder / "checkpoints")
        self._folder = folder
        self._num_nodes = num_nodes
        self._attempts = itertools.count(1)
        folder.mkdir()

    def open_storage(self, rank: int) -> Storage:
        return DirectoryStorage(self.storage.root)

    def records(self, rank: int) -> list[Record]:
        """Returns all records of this rank except the beginnings of saves."""
        paths = sorted(self._folder.glob(f"*/{rank}.journal"))
        records = [record for path in paths for record in read_records(path)]
        return [record for record in records if not isinstance(record, CheckpointBegun)]

    def left_over(self) -> list[Path]:
        """Returns everything that is left where checkpoints are written and removed."""
        return sorted((self.storage.root / ".staging").rglob("*"))

    def run(self, script: Callable[[Rank], T]) -> list[T]:
        """Returns the results of all ranks, or raises the error of a rank that failed."""
        return self.attempt(script).by_rank()

    def attempt(self, script: Callable[[Rank], T]) -> Outcomes[T]:
        folder = self._folder / str(next(self._attempts))
        # Ranks meet in it only if it is private.
        folder.mkdir(mode=0o700)

        def run_rank(number: int) -> T:
            with (
                # Every rank could record: that only the chief does is its own doing.
                contextlib.closing(JournalWriter(folder / f"{number}.journal")) as journal,
                self._join(number, folder) as distributed,
            ):
                checkpoint = CheckpointContext(self.open_storage(number), distributed, journal)
                return script(Rank(number, distributed, checkpoint))

        return together(self.num_ranks, run_rank)

    def _join(self, number: int, folder: Path) -> DistributedContext:
        return DistributedContext(
            **place(number, self.num_ranks, self._num_nodes),
            rendezvous=str(folder),
            timeout_s=TIMEOUT_S,
            join_timeout_s=TIMEOUT_S,
        )
