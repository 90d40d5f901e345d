"""A data loader that resumes after a stop with the very next sample."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch.utils.data import DataLoader, IterableDataset

from core_sdk._distributed import DistributedContext, has_process_group
from core_sdk._ground.data.places import DataPlace, DataPlaces
from core_sdk._ground.data.waits import DataWait
from core_sdk._ground.environment import RankPlace, trial_seed, trial_setback
from core_sdk._ground.records import MAX_SEED
from core_sdk._ground.signs import SignsOfLife
from core_sdk.errors import DataError, NotExactError
from core_sdk.loop._loading._data_identity import data_identity, differences
from core_sdk.loop._loading._fetching import Fetching
from core_sdk.loop._loading._grain import GrainLoader, is_of_grain
from core_sdk.loop._loading._iterated import IteratedSource
from core_sdk.loop._loading._nodes import is_nodes_loader, prepare_nodes
from core_sdk.loop._loading._planned import PlannedSource
from core_sdk.loop._loading._sampling import read_sampling
from core_sdk.loop._loading._sharded import ShardedSource, as_shards
from core_sdk.loop._loading._source import Source, is_stateful
from core_sdk.loop._plan import DataParallelRank, Draw, LastBatch, Position

logger = logging.getLogger("core_sdk.loop")

_ANOTHER_SEED = 1_000_003

ChangedData: TypeAlias = Literal["strict", "warn", "any"]
"""What a loader does with data that are not those of the checkpoint. "strict": it refuses them. "warn": it names what
has changed, and refuses another length or other shards. "any": it only names what has changed."""


def resumable(
    loader: Any,
    *,
    seed: int | None = None,
    last_batch: LastBatch | None = None,
    exact: bool = True,
    distributed: DistributedContext | None = None,
    shares_batch: bool = False,
    data: ChangedData = "warn",
) -> ResumableLoader:
    """Makes a loader that can resume exactly, with the data and options of `loader`, a `torch.utils.data.DataLoader`.

    The order of the samples, and what they draw at random, are functions of `seed`, the epoch and the position. `seed`
    is the trial's by default, and 0 outside a trial. The batch size counts the samples of one rank; each batch is
    divided among the ranks of `distributed`, by default of torch.distributed. Give a loader of all the data. With
    `shares_batch` the batch size counts the samples of all ranks, so that any number of ranks has the same batches.

    It also takes other loaders with `state_dict()` and `load_state_dict()`, and datasets and loaders of Google's Grain.

    `last_batch` says what happens if fewer samples than a batch are left at an epoch's end: "drop" them, "keep" them as
    a smaller batch, or "carry" them over to the next epoch. The default follows the loader's `drop_last`.

    A state keeps the identity of the data. If a resume has other data, a warning says what has changed, and another
    length or other shards are a `DataError`. `data="strict"` refuses any change that is noticed. `data="any"` refuses
    none: the training goes on at the same place in the other data, and with the next epoch if there is no such place.

    Raises `NotExactError` if the loader cannot be made exact. `exact=False` allows such a loader, which resumes after
    the same number of batches, and may repeat or miss samples. Raises `TypeError` for other kinds of loaders, and
    `ValueError`.
    """
    seed = trial_seed() if seed is None else seed
    if data not in get_args(ChangedData):
        raise ValueError(f"data={data!r}: give one of {', '.join(get_args(ChangedData))}")
    return ResumableLoader(loader, seed or 0, last_batch, exact, _ranks(distributed), shares_batch, data)


class ResumableLoader:
    """A data loader that `resumable()` has made. Iterate over it to get the rest of the current epoch.

        for epoch in range(loader.epoch, num_epochs):
            for batch in loader:
                …

    A batch counts as trained on as soon as the loop has it, so save at the end of the loop's body. An epoch ends when
    the loop over it ends, or when the loader is iterated over again after the last batch. So a training that was saved
    after the last batch resumes in the same epoch, after the end of that loop.
    """

    def __init__(
        self,
        loader: Any,
        seed: int,
        last_batch: LastBatch | None,
        exact: bool,
        ranks: DataParallelRank,
        shares_batch: bool,
        data: ChangedData = "warn",
    ) -> None:
        self._loader = loader
        self._changed_data = data
        # As the script has given them: some datasets change while they are trained on.
        self._data_identity = data_identity(getattr(loader, "dataset", loader))
        self._told: list[str] = []
        self._ranks = ranks
        self._make_source: Callable[[int], Source] = partial(
            _choose_source, loader, ranks, last_batch, exact, shares_batch
        )
        self._source = self._make_source(seed)
        self._progress = _DataProgress(seed, self._source.start)
        self._running: Generator[tuple[Draw, Any], None, None] | None = None
        self._is_kept = False
        """Whether its position is kept in checkpoints."""
        self._has_begun = False
        """Whether it knows where the attempt begins: it has given batches, or has taken over a state."""
        DataPlaces.enter(self, ResumableLoader._place)
        if getattr(loader, "pin_memory", False):
            atexit.register(_end_workers, weakref.ref(self), os.getpid())

    @property
    def seed(self) -> int:
        """The seed of the order of the data, and of all random numbers that are drawn for them."""
        return self._progress.seed

    @property
    def batches(self) -> int:
        """The number of global batches since the training began, over all its attempts."""
        return self._progress.batches

    @property
    def samples(self) -> int:
        """The number of samples of these batches, on all ranks together."""
        return self._progress.samples

    @property
    def epoch(self) -> int:
        """The current epoch, counted from 0."""
        return self._progress.position.epoch

    @property
    def is_epoch_over(self) -> bool:
        """Whether the last batch of the current epoch was given. The epoch is then left by the next iteration."""
        return self._source.is_epoch_over(self._progress.position)

    @property
    def batches_per_epoch(self) -> int | None:
        """The number of batches of each epoch; None if it is unknown, or if epochs differ."""
        return self._source.batches_per_epoch

    def num_batches(self, epoch: int) -> int | None:
        """Returns the number of batches of an epoch; None if it is unknown."""
        return self._source.num_batches(epoch)

    @property
    def dataset(self) -> Any:
        """The dataset of the loader that `resumable()` was given."""
        return self._loader.dataset

    @property
    def sampler(self) -> ReplacedSampler:
        """A sampler with `set_epoch()` and `len()`, for loops that call them. The loader itself chooses the samples."""
        return ReplacedSampler(getattr(self._loader, "sampler", None))

    @property
    def batch_sampler(self) -> ReplacedSampler:
        """A sampler of batches with `set_epoch()` and `len()`, for loops that call them."""
        return ReplacedSampler(getattr(self._loader, "batch_sampler", None))

    def __len__(self) -> int:
        """Returns the number of batches of the whole current epoch."""
        if (num_batches := self.num_batches(self.epoch)) is None:
            raise TypeError("this loader has no length: its epochs differ, or its dataset has none")
        return num_batches

    def __iter__(self) -> Iterator[Any]:
        """Yields the rest of the current epoch. Then the next epoch becomes the current one."""
        self._begin_attempt(is_resumed=False)
        progress = self._progress
        self._leave_finished_epoch()
        if not self.is_epoch_over:
            for draw, batch in self.stream():
                yield batch
                if draw.is_epoch_end:
                    break
        self._end_epoch(progress)

    def _leave_finished_epoch(self) -> None:
        """Ends an epoch whose loop was left after the last batch, by a count of the batches for example."""
        if self._progress.draw is not None and self.is_epoch_over:
            self._end_epoch(self._progress)

    def _end_epoch(self, progress: _DataProgress) -> None:
        progress.start, progress.draw = self._source.next_epoch(progress.position), None
        progress.is_at_beginning = True

    def stream(self) -> Iterator[tuple[Draw, Any]]:
        """Returns an endless iterator over all further batches, each with its draw. There is only one at a time."""
        self._begin_attempt(is_resumed=False)
        if self._running is None or getgeneratorstate(self._running) == GEN_CLOSED:
            self._running = _stream(self._source, self._progress)
        return self._running

    def _end_stream(self) -> None:
        """Ends the workers of the iterator, unless they are persistent."""
        if self._running is not None:
            self._running.close()

    def single_pass(self) -> Iterator[tuple[Draw, Any]]:
        """Returns an iterator over all data once, in the order of epoch 0, for a validation. Keeps the position."""
        return self._source.single_pass()

    def explain(self, error: BaseException) -> None:
        """Adds a note to torch's error if it is about a lost worker: the samples that the workers had to fetch.

        While the loader fetches, it does this itself. Torch may also raise such an error in the middle of other code.
        """
        self._source.explain(error)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, as plain values. If each rank reads its own data, each has its own state."""
        progress, self._is_kept = self._progress, True
        return {
            "seed": progress.seed,
            "epoch": progress.position.epoch,
            "offset": progress.position.offset,
            "batches": progress.batches,
            "samples": progress.samples,
            "num_ranks": self._ranks.size,
            "data_identity": self._data_identity,
            **self._source.state(progress.position),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes at the position of a state, with its seed. Raises `DataError` for other data, as `resumable()` says.

        The number of ranks may have changed, unless each rank reads data of its own.

        The first state in an attempt with which a guard has let the trial go back is that of the checkpoint: the loader
        then leaves out what the guard says.
        """
        self._load(state)
        self._is_kept = True
        self._begin_attempt(is_resumed=True)

    def _place(self) -> DataPlace | None:
        """Returns the place of the training in these data; None if there is none that could be found again."""
        name, progress = self._source.data_name(), self._progress
        if name is None or not (self._is_kept or progress.draw is not None):
            return None
        return DataPlace(name, progress.seed, *progress.position)

    def _begin_attempt(self, *, is_resumed: bool) -> None:
        """Leaves out the batches of a trouble to which the trial has gone back, once, and changes the order."""
        if self._has_begun:
            return
        self._has_begun = True
        if (setback := trial_setback()) is None or not (is_resumed or setback.begins_anew):
            return
        progress = self._progress
        ahead = [
            each for each in setback.detours if (each.data, each.seed) == (self._source.data_name(), progress.seed)
        ]
        for detour in ahead:
            beyond = self._source.after(Position(detour.epoch, detour.offset), detour.num_batches)
            if beyond > progress.position:
                progress.start, progress.draw, progress.is_at_beginning = beyond, None, beyond.offset == 0
        if setback.num_reshuffles:
            seed = (progress.seed + setback.num_reshuffles * _ANOTHER_SEED) % (MAX_SEED + 1)
            self._load({**self.state_dict(), "seed": seed})

    def _load(self, state: dict[str, Any]) -> None:
        self._end_stream()
        if state["seed"] != self.seed:
            self._source = self._make_source(state["seed"])
        changes = self._changes(state)
        if self._changed_data == "any":
            state = self._source.adopted(state, has_changed=bool(changes))
        position = Position(state["epoch"], state["offset"])
        self._source.load(state, position)
        self._progress = _DataProgress(
            state["seed"], position, state["batches"], state["samples"], is_at_beginning=position.offset == 0
        )
        if changes and changes != self._told and self._ranks.rank == 0:
            logger.warning("the data are not those of the checkpoint: %s", "; ".join(changes))
        self._told = changes

    def _changes(self, state: dict[str, Any]) -> list[str]:
        """Returns how the data differ from those of a state. Raises `DataError` if they must not."""
        if self._source.is_of_one_rank and state["num_ranks"] != self._ranks.size:
            return []  # each rank has other data than before
        changes = differences(state.get("data_identity", {}), self._data_identity)
        if changes and self._changed_data == "strict":
            raise DataError.other(changes)
        return changes

    def begin_epoch(self, epoch: int) -> None:
        """Leaves the current epoch, and goes on at the beginning of this one. The counts go on, too."""
        self._leave_finished_epoch()
        progress = self._progress
        if epoch == self.epoch and progress.draw is None and progress.is_at_beginning:
            return
        # The last two belong to data that can only be read from their beginning.
        beginning = {"epoch": epoch, "offset": 0, "data": None, "is_epoch_over": False}
        self._load(self.state_dict() | beginning)


class ReplacedSampler:
    """Stands for a sampler whose work the loader does. Loops that call `sampler.set_epoch(epoch)` need no change."""

    def __init__(self, replaced: Any) -> None:
        self._replaced = replaced

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the loader knows its epoch, also after a resume."""

    @property
    def sampler(self) -> ReplacedSampler:
        return ReplacedSampler(getattr(self._replaced, "sampler", None))

    def __len__(self) -> int:
        return len(self._replaced)


@dataclass(slots=True)
class _DataProgress:
    """The position of a training in its data."""

    seed: int
    start: Position
    """The position at which the loader resumed, or at which the epoch began."""
    batches: int = 0
    samples: int = 0
    draw: Draw | None = None
    """The last batch since `start`."""
    is_at_beginning: bool = True
    """Whether an epoch begins at `start`."""

    @property
    def position(self) -> Position:
        return self.start if self.draw is None else Position(self.draw.epoch, self.draw.offset)


def _stream(source: Source, progress: _DataProgress) -> Generator[tuple[Draw, Any], None, None]:
    """Yields batches and records the progress.

    Does not refer to the loader: without a reference cycle, the workers end as soon as the loader is dropped.
    """
    clock, wait = time.perf_counter, DataWait.of_process
    begun = clock()
    for draw, batch in source.stream(progress.position):
        wait.seconds += clock() - begun
        progress.draw = draw
        progress.batches += 1
        progress.samples += draw.num_global
        SignsOfLife.beat()
        yield draw, batch
        begun = clock()


def _end_workers(loader: weakref.ref[ResumableLoader], pid: int) -> None:
    """Ends the workers when their process ends, after torch's thread that pins what they send.

    The stream has no end, so that they are still at work. If Python ended them, that thread would write a traceback.
    """
    found = loader()
    if found is not None and os.getpid() == pid:  # a forked child may end, too
        found._end_stream()


def _choose_source(
    loader: Any, ranks: DataParallelRank, last_batch: LastBatch | None, exact: bool, shares_batch: bool, seed: int
) -> Source:
    """Chooses the source of the batches. Raises what `resumable()` raises."""
    if isinstance(loader, ResumableLoader):
        raise TypeError("this loader is resumable already")
    is_torch = isinstance(loader, DataLoader) and _iterates_as_torch(type(loader))
    shards = as_shards(loader, ranks.size, exact=exact) if is_torch else None
    if is_torch and (shards is not None or not isinstance(loader.dataset, IterableDataset)):
        if exact and loader.num_workers > 0 and not loader.in_order:
            raise NotExactError("in_order=False gives batches in the order in which workers finish", "leave it out")
        if shards is not None:
            return ShardedSource(loader, shards, seed, ranks, last_batch, shares_batch)
        sampling = read_sampling(loader, seed, exact, ranks.size > 1)
        fetching = partial(Fetching, loader, sampling.form, seed)
        return PlannedSource(loader, sampling, fetching, seed, ranks, last_batch, shares_batch)
    if last_batch is not None or shares_batch:
        what = "shares_batch=True" if last_batch is None else f"last_batch={last_batch!r}"
        raise ValueError(f"{what} needs a dataset in shards, or one with __getitem__() and __len__()")
    if is_of_grain(loader):
        grain = GrainLoader(loader)
        return IteratedSource(grain, grain, seed, ranks)
    if is_stateful(loader):
        if is_nodes_loader(loader):
            prepare_nodes(loader, exact=exact)
        return IteratedSource(loader, loader, seed, ranks)
    if is_torch and loader.num_workers == 0 and is_stateful(loader.dataset):
        return IteratedSource(loader, loader.dataset, seed, ranks)
    if not exact and hasattr(loader, "__iter__"):
        return IteratedSource(loader, None, seed, ranks)
    if is_torch:
        raise NotExactError(
            f"{type(loader.dataset).__name__} is an IterableDataset, whose position is lost with the process",
            "give its shards to a loop.ShardedDataset, or give it state_dict() and load_state_dict() and take "
            "num_workers=0, or use torchdata's StatefulDataLoader",
        )
    if isinstance(loader, DataLoader):
        raise NotExactError(
            f"{type(loader).__name__} does not iterate as torch.utils.data.DataLoader does",
            "give it state_dict() and load_state_dict(), or leave its __iter__() as it is",
        )
    raise TypeError(
        f"{type(loader).__name__} is no DataLoader of torch, and has no state_dict() and load_state_dict() by which it "
        "could resume: give a DataLoader of torch, or pass exact=False"
    )


def _iterates_as_torch(kind: type[DataLoader[Any]]) -> bool:
    """Returns whether a plan can replace the iteration. A subclass may move or change batches when it iterates."""
    return kind.__iter__ is DataLoader.__iter__ or kind.__module__.partition(".")[0] == "torchdata"


def _ranks(distributed: DistributedContext | None) -> DataParallelRank:
    if distributed is not None:
        return DataParallelRank(distributed.rank, distributed.size)
    if has_process_group():
        return DataParallelRank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    try:
        place = RankPlace.from_torchrun()
    except KeyError:
        return DataParallelRank()
    return DataParallelRank(place.rank, place.size)
