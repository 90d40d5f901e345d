"""The checkpoints of a trainer, which are stored while the training goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from core_sdk import core
from core_sdk.errors import CheckpointNotFoundError, WorkerError

logger = logging.getLogger("core_sdk.sgd")

STATE_FILE = "state.pt"


class TrainerMark(NamedTuple):
    """The progress of a training. From one state, passes lead to all later ones that have the same `num_changes`."""

    num_changes: int
    """The number of calls, other than passes, that have changed the state."""
    steps: int


class _Kept(NamedTuple):
    storage_id: str
    mark: TrainerMark


class Checkpoints:
    """The checkpoints of a trainer. Each one takes the place of the one before it, once it is stored.

    A checkpoint that the user has asked for stays, and so do all if the trial has a configuration, which then says
    what is kept.
    """

    def __init__(self, context: core.Context) -> None:
        self._context = context
        self._stored: _Kept | None = None
        self._pending: _Kept | None = None
        """The one that is being stored in the background."""
        self._last_mark: TrainerMark | None = None
        """The mark of the last one that was begun."""
        self._asked_for: set[str] = set()

    def begin(self, read_state: Callable[[], bytes], metadata: dict[str, Any], mark: TrainerMark) -> None:
        """Begins to store a state, after `settle()`."""
        self._last_mark = mark
        with self._context.checkpoint.store_path(
            metadata, wait=False, write_later=lambda path: (path / STATE_FILE).write_bytes(read_state())
        ) as (_, storage_id):
            self._pending = _Kept(storage_id, mark)

    def settle(self) -> None:
        """Blocks until the checkpoint that was begun is stored, and deletes the one that it replaces.

        Raises the error because of which it could not be stored. That is a `WorkerError` if a worker took its state
        along.
        """
        if (pending := self._pending) is None:
            return
        try:
            self._context.checkpoint.wait()
            self._context.checkpoint.get_metadata(pending.storage_id)  # another call may have raised the failure
        except Exception:
            self._pending = None  # it will never be stored; after an interrupt it still may be, and is waited for again
            raise
        replaced, self._stored, self._pending = self._stored, pending, None
        if replaced is None or replaced.storage_id in self._asked_for or self._context.info.trial.config:
            return
        self._context.checkpoint.release(replaced.storage_id)

    def settle_or_lose(self) -> None:
        """Settles, and only logs if the state of the checkpoint that was begun is lost."""
        try:
            self.settle()
        except (WorkerError, CheckpointNotFoundError) as error:
            logger.warning("the last state could not be stored: %s", error)

    def has(self, mark: TrainerMark) -> bool:
        """Returns whether the last checkpoint, which may not be stored yet, has this state."""
        return mark in [each.mark for each in (self._pending, self._stored) if each is not None]

    def lead_to(self, mark: TrainerMark) -> bool:
        """Returns whether this state was kept, and passes lead to it from the last one that is certainly stored."""
        stored = self._stored
        return stored is not None and self._last_mark == mark and stored.mark.num_changes == mark.num_changes

    def ask_for_last(self) -> str:
        """Returns the storage id of the last checkpoint, which then stays."""
        kept = self._pending or self._stored
        if kept is None:
            raise AssertionError("no checkpoint was begun")
        self._asked_for.add(kept.storage_id)
        return kept.storage_id

    def read(self) -> bytes:
        """Returns the state in the last stored checkpoint."""
        if self._stored is None:
            raise AssertionError("no checkpoint is stored")
        with self._context.checkpoint.restore_path(self._stored.storage_id) as directory:
            return (directory / STATE_FILE).read_bytes()
