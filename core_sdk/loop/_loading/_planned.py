"""The batches of a dataset whose samples can be fetched in any order."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from core_sdk.errors import DataError
from core_sdk.loop import _rng as rng
from core_sdk.loop._loading._fetching import Fetching, WorkerStart, as_it_is
from core_sdk.loop._loading._sampling import Sampling
from core_sdk.loop._loading._source import Source
from core_sdk.loop._orders import Order
from core_sdk.loop._plan import DataParallelRank, Draw, LastBatch, Plan, Position


class PlannedSource(Source):
    """Fetches batches by a plan, with a loader of torch's that has all options of the user's loader."""

    def __init__(
        self,
        loader: DataLoader[Any],
        sampling: Sampling,
        fetching: Callable[[], Fetching],
        seed: int,
        ranks: DataParallelRank,
        last_batch: LastBatch | None,
        shares_batch: bool = False,
    ) -> None:
        self._ranks = ranks
        self._sampling = sampling
        self._last_batch: LastBatch = last_batch or ("drop" if sampling.drop_last else "keep")
        self._batch_size = sampling.batch_size * (1 if shares_batch else ranks.size)
        self._take_order(sampling.order)
        # Two, because torch's loader with persistent workers has one iterator at a time.
        self._streaming, self._passing = (_planned_loader(loader, fetching(), seed) for _ in range(2))
        self.start = sampling.start
        self._ahead: deque[Draw] = deque()
        """The draws that the last iteration has requested and not yet delivered."""

    def _take_order(self, order: Order) -> None:
        self._plan = Plan(order, self._batch_size, self._last_batch)
        # A single pass has no next epoch to which samples could be carried over.
        self._pass_plan = Plan(order, self._batch_size, "drop" if self._last_batch == "drop" else "keep")

    @property
    def batches_per_epoch(self) -> int | None:
        return self._plan.batches_per_epoch

    def num_batches(self, epoch: int) -> int | None:
        return self._plan.num_batches(epoch)

    def data_name(self) -> str | None:
        return f"{self._plan.num_units} units in {type(self._plan.order).__name__}"

    def after(self, position: Position, num_batches: int) -> Position:
        return self._plan.after(position, num_batches)

    def stream(self, position: Position) -> Iterator[tuple[Draw, Any]]:
        return self._fetched(self._streaming, self._plan.batches(position, *self._ranks))

    def single_pass(self, position: Position = Position()) -> Iterator[tuple[Draw, Any]]:  # noqa: B008
        plan = self._pass_plan
        num_batches = (plan.num_batches(0) or 0) - position.offset // plan.batch_size
        return self._fetched(self._passing, islice(plan.batches(position, *self._ranks), num_batches))

    def explain(self, error: BaseException) -> None:
        if self._ahead and str(error).startswith("DataLoader worker"):
            _add_note_about_lost_worker(error, self._ahead)

    def _fetched(self, loader: DataLoader[Any], draws: Iterable[Draw]) -> Generator[tuple[Draw, Any], None, None]:
        self._ahead = deque()
        return _fetched(loader, draws, self._ahead)

    def is_epoch_over(self, position: Position) -> bool:
        return self._plan.is_epoch_over(position)

    def next_epoch(self, position: Position) -> Position:
        return self._plan.next_epoch(position)

    def state(self, position: Position) -> dict[str, Any]:
        drawn = self._sampling.drawn
        return {
            "order": type(self._plan.order).__name__,
            "num_units": self._plan.num_units,
            "batch_size": self._plan.batch_size,
            "sampler": drawn and drawn.state(position.epoch),
        }

    def adopted(self, state: dict[str, Any], *, has_changed: bool) -> dict[str, Any]:
        num_units, before = self._plan.num_units, state.get("num_units")
        if num_units == before:
            return state
        return {**state, "num_units": num_units, "offset": min(state["offset"], num_units)}

    def load(self, state: dict[str, Any], position: Position) -> None:
        own = self.state(position)
        check_same("the order of the data", state.get("order"), own["order"])
        check_same("the length of the data", state.get("num_units"), own["num_units"], waiver=OTHER_DATA)
        if self._sampling.drawn and state["sampler"]:
            self._sampling.drawn.load(state["sampler"])


OTHER_DATA = "pass data='any' to resumable() to go on at the same place in other data"


def check_same(what: str, expected: object, found: object, waiver: str | None = None) -> None:
    """Raises `DataError` if they differ. `waiver` is what to do if they may."""
    if expected != found:
        raise DataError.changed(what, expected, found, waiver)


def _planned_loader(loader: DataLoader[Any], fetching: Fetching, seed: int) -> DataLoader[Any]:
    has_workers = loader.num_workers > 0
    return DataLoader(
        fetching,
        batch_sampler=_Draws(),
        num_workers=loader.num_workers,
        collate_fn=as_it_is,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=WorkerStart(loader),
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator().manual_seed(rng.key(seed, "workers")),
        prefetch_factor=loader.prefetch_factor if has_workers else None,
        persistent_workers=loader.persistent_workers,
        pin_memory_device=loader.pin_memory_device,
        in_order=loader.in_order,
    )


def _fetched(
    loader: DataLoader[Any], draws: Iterable[Draw], ahead: deque[Draw]
) -> Generator[tuple[Draw, Any], None, None]:
    batch_sampler: Any = loader.batch_sampler
    batch_sampler.source = _noted(draws, ahead)
    has_begun = False
    try:
        try:
            for batch in loader:
                has_begun = True
                yield ahead.popleft(), batch
        except (OSError, EOFError) as error:
            # A dying worker closes its connections first. Soon after, torch's signal handler says why it died.
            if _lost_worker(error, loader):
                time.sleep(_DEATH_S)
            raise
    except (RuntimeError, OSError, EOFError) as error:
        if _lost_worker(error, loader):
            if not has_begun and not _knows_main(loader):
                error.add_note(
                    "The loader's workers know nothing that a cell of a notebook defines, since they are not started "
                    "by 'fork'. Put the dataset's class, and all other classes and functions that the loader is given, "
                    "into a file and import them, or pass multiprocessing_context='fork' or num_workers=0."
                )
            _add_note_about_lost_worker(error, ahead)
        raise


class _Draws:
    """The batch sampler of a loader, which reads it again for each iteration."""

    source: Iterator[Draw]

    def __iter__(self) -> Iterator[Any]:
        return self.source


def _noted(draws: Iterable[Draw], ahead: deque[Draw]) -> Iterator[Draw]:
    """Yields the draws, and appends each to `ahead` when the loader requests it."""
    for draw in draws:
        ahead.append(draw)
        yield draw


# The time within which the signal of a child's death arrives.
_DEATH_S = 1.0


def _lost_worker(error: Exception, loader: DataLoader[Any]) -> bool:
    """Returns whether a worker has died or takes too long.

    Torch raises the dataset's own exceptions with other texts.
    """
    return loader.num_workers > 0 and not str(error).startswith("Caught ")


def _knows_main(loader: DataLoader[Any]) -> bool:
    """Returns whether the loader's workers have what the program itself defines: a notebook has no file to import."""
    how: Any = loader.multiprocessing_context or multiprocessing
    return how.get_start_method() == "fork" or hasattr(sys.modules["__main__"], "__file__")


def _add_note_about_lost_worker(error: BaseException, ahead: Iterable[Draw]) -> None:
    batches = "; ".join(f"{draw.indices} of epoch {draw.epoch}" for draw in ahead)
    note = (
        f"The loader's workers had these samples to fetch, by batches: {batches}. Take them from the dataset by hand "
        "to find one that fails. If none does, the workers may lack memory: the kernel's log names the processes that "
        "it has killed for that, and /dev/shm holds the batches of all workers."
    )
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
