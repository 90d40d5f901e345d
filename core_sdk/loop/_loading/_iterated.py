"""The batches of data that can only be read in sequence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import count
from typing import Any

from core_sdk.errors import DataError, NotExactError
from core_sdk.loop import _rng as rng
from core_sdk.loop._loading._source import Source
from core_sdk.loop._plan import DataParallelRank, Draw, Position

_END = object()


class IteratedSource(Source):
    """Reads a loader of an iterable dataset, or of another library, unchanged. Offsets count batches.

    `keeper` is the dataset or the loader, if it has `state_dict()` and `load_state_dict()`. The source reads one batch
    ahead, since only that shows which batch is the last of an epoch. Before that it asks for the keeper's state.
    Without a keeper, it finds a position by reading all batches before it.
    """

    is_of_one_rank = True

    def __init__(self, loader: Any, keeper: Any, seed: int, ranks: DataParallelRank) -> None:
        self._loader = loader
        self._keeper = keeper
        self._seed = seed
        self._ranks = ranks
        self._num_global = (getattr(loader, "batch_size", None) or 1) * ranks.size
        self._kept: Any = None
        """The state of the keeper after the last batch that was given."""
        self._over: Position | None = None
        """The end of the epoch, once it is reached."""
        self._before_pass: Any = None

    @property
    def batches_per_epoch(self) -> None:
        return None

    def stream(self, position: Position) -> Iterator[tuple[Draw, Any]]:
        is_at_start = position.offset == 0
        if self.is_epoch_over(position):
            position, is_at_start = self.next_epoch(position), True
        if self._kept is not None:
            self._keeper.load_state_dict(copy.deepcopy(self._kept))
        batches = self._iterate(position)
        batch = self._read(batches, position)
        if batch is _END and is_at_start:
            # The loaded state was that at the end of the previous epoch.
            batches = self._iterate(position)
            batch = self._read(batches, position)
        while batch is not _END:
            yield from self._rest_of_epoch(position, batch, batches)
            position = self.next_epoch(position)
            batches = self._iterate(position)
            batch = self._read(batches, position)
        raise DataError(
            f"the data gave no batch in epoch {position.epoch}, from batch {position.offset} on: an iterable must "
            "begin anew each time that it is iterated over, and go on where it was after load_state_dict()"
        )

    def single_pass(self) -> Iterator[tuple[Draw, Any]]:
        if self._keeper is not None and self._before_pass is None:
            # A loader that has not been read yet begins an iteration to give its state, which draws a seed.
            with rng.seeded(self._seed, "iterable"):
                self._before_pass = copy.deepcopy(self._keeper.state_dict())
        elif self._keeper is not None:
            self._keeper.load_state_dict(copy.deepcopy(self._before_pass))
        batches = self._iterate(Position())
        for offset in count():
            batch = self._read(batches, Position(0, offset))
            if batch is _END:
                return
            yield Draw(0, offset, [], self._num_global, offset + 1, False, False), batch

    def is_epoch_over(self, position: Position) -> bool:
        return position == self._over

    def next_epoch(self, position: Position) -> Position:
        return Position(position.epoch + 1, 0)

    def state(self, position: Position) -> dict[str, Any]:
        return {"data": self._kept, "is_epoch_over": self.is_epoch_over(position), "num_workers": self._num_workers()}

    def load(self, state: dict[str, Any], position: Position) -> None:
        if self._keeper is not None:
            if not getattr(self._loader, "fits_any_ranks", False):
                _check_parts("ranks", state["num_ranks"], self._ranks.size, "resume on {} ranks")
            own = self._num_workers()
            _check_parts("loader workers", state["num_workers"], own, "give the loader num_workers={}")
        self._kept = state["data"]
        self._over = position if state["is_epoch_over"] else None

    def _num_workers(self) -> int:
        return getattr(self._loader, "num_workers", 0)

    def _iterate(self, position: Position) -> Iterator[Any]:
        if callable(set_epoch := getattr(getattr(self._loader, "dataset", None), "set_epoch", None)):
            set_epoch(position.epoch)
        with rng.seeded(self._seed, "iterable", position.epoch):
            batches: Iterator[Any] = iter(self._loader)
        for offset in range(position.offset if self._keeper is None else 0):
            if self._read(batches, Position(position.epoch, offset)) is _END:
                raise DataError.changed("the number of batches in an epoch", f"{position.offset} or more", offset)
        return batches

    def _read(self, batches: Iterator[Any], position: Position) -> Any:
        """Reads a batch; returns `_END` at the end. Its random numbers are a function of its position."""
        with rng.seeded(self._seed, "iterable", *position):
            return next(batches, _END)

    def _rest_of_epoch(self, position: Position, batch: Any, batches: Iterator[Any]) -> Iterator[tuple[Draw, Any]]:
        epoch, offset = position
        while batch is not _END:
            kept = None if self._keeper is None else copy.deepcopy(self._keeper.state_dict())
            following = self._read(batches, Position(epoch, offset + 1))
            if following is _END and self._keeper is not None:
                # A dataset that starts again after its end would do so within the epoch if its last state were loaded.
                kept = copy.deepcopy(self._keeper.state_dict())
            draw = Draw(epoch, offset, [], self._num_global, offset + 1, following is _END, False)
            self._kept = kept
            self._over = Position(epoch, offset + 1) if following is _END else None
            yield draw, batch
            batch, offset = following, offset + 1


def _check_parts(who: str, before: int, now: int, remedy: str) -> None:
    """Raises `NotExactError` if others divide the data now than when the state was taken."""
    if before != now:
        raise NotExactError(
            f"the data were divided among {before} {who}, each with a state of its own, and there are {now} now",
            remedy.format(before),
            waiver=None,
        )
