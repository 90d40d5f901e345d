"""The batches of a dataset in shards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from core_sdk.errors import DataError, NotExactError
from core_sdk.loop._loading._fetching import ShardFetching
from core_sdk.loop._loading._planned import OTHER_DATA, PlannedSource, check_same
from core_sdk.loop._loading._sampling import Form, Sampling
from core_sdk.loop._loading._shards import ShardReader
from core_sdk.loop._orders import Positions
from core_sdk.loop._plan import DataParallelRank, Draw, LastBatch, Position
from core_sdk.loop._sharded_dataset import ShardedDataset, has_shards


class ShardedSource(PlannedSource):
    """Fetches the batches of a sharded dataset by a plan.

    While the length of a shard is unknown, the plan has no end, and a batch is given once the next one is there. The
    first batch that the epoch cannot fill shows that all lengths are known. From then on the plan has an end.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        dataset: ShardedDataset,
        seed: int,
        ranks: DataParallelRank,
        last_batch: LastBatch | None,
        shares_batch: bool,
    ) -> None:
        self._dataset = dataset
        self._lengths = [*dataset.lengths]
        form: Form = "one sample" if loader.batch_size is None else "samples"
        sampling = Sampling(self._order(), loader.batch_size or 1, loader.drop_last, form, None, Position())

        def fetching() -> ShardFetching:
            return ShardFetching(loader, form, seed, ShardReader(dataset, seed, self._lengths))

        super().__init__(loader, sampling, fetching, seed, ranks, last_batch, shares_batch)

    def data_name(self) -> str | None:
        return None if None in self._lengths else super().data_name()

    def stream(self, position: Position) -> Iterator[tuple[Draw, Any]]:
        position = yield from self._learning(self._streaming, position)
        for draw, (batch, _) in super().stream(position):
            yield draw, batch

    def single_pass(self, position: Position = Position()) -> Iterator[tuple[Draw, Any]]:  # noqa: B008
        position = yield from self._learning(self._passing, position)
        for draw, (batch, _) in super().single_pass(position):
            yield draw, batch

    def state(self, position: Position) -> dict[str, Any]:
        dataset = self._dataset
        order = f"shards shuffled in blocks of {dataset.block_size}" if dataset.shuffle else "shards"
        shards = {"order": order, "shards": _checksum(dataset.shards), "lengths": [*self._lengths]}
        return super().state(position) | shards | {"num_units": self._num_samples()}

    def adopted(self, state: dict[str, Any], *, has_changed: bool) -> dict[str, Any]:
        own = self.state(self.start)
        lengths = zip(state["lengths"], own["lengths"], strict=False)
        is_alike = len(state["lengths"]) == len(own["lengths"]) and all(
            a == b for a, b in lengths if None not in (a, b)
        )
        if is_alike and state["shards"] == own["shards"] and not has_changed:
            return state
        num_samples = self._num_samples()
        offset = state["offset"] if num_samples is None else min(state["offset"], num_samples)
        return {**state, "shards": own["shards"], "lengths": own["lengths"], "offset": offset}

    def load(self, state: dict[str, Any], position: Position) -> None:
        own = self.state(position)
        check_same("the order of the data", state.get("order"), own["order"])
        check_same("the number of shards", len(state["lengths"]), len(self._lengths), OTHER_DATA)
        check_same("the checksum of the names of the shards, in order,", state["shards"], own["shards"], OTHER_DATA)
        self._learn(state["lengths"])

    def _num_samples(self) -> int | None:
        known = [length for length in self._lengths if length is not None]
        return sum(known) if len(known) == len(self._lengths) else None

    def _order(self) -> Positions:
        return Positions(self._num_samples())

    def _fetched(self, loader: DataLoader[Any], draws: Iterable[Draw]) -> Generator[tuple[Draw, Any], None, None]:
        for draw, (batch, lengths) in super()._fetched(loader, draws):
            if isinstance(batch, DataError):
                raise batch
            yield draw, (batch, lengths)

    def _learning(self, loader: DataLoader[Any], position: Position) -> Generator[tuple[Draw, Any], None, Position]:
        """Yields batches as long as a length is unknown. Returns the position behind them."""
        if self._num_samples() is not None:
            return position
        held: tuple[Draw, Any] | None = None
        with closing(self._fetched(loader, self._plan.batches(position, *self._ranks))) as fetched:
            for draw, (batch, lengths) in fetched:
                self._learn(lengths)
                if self._num_samples() is not None:
                    break
                if held is not None:
                    position = Position(held[0].epoch, held[0].offset)
                    yield held
                held = draw, batch
        return position

    def _learn(self, lengths: Sequence[int | None]) -> None:
        """Takes over the lengths that are known. Raises `DataError` if they contradict what was known."""
        for shard, length in enumerate(lengths):
            if length is not None:
                if (own := self._lengths[shard]) is not None:
                    check_same(f"the length of shard {self._dataset.shards[shard]!r}", length, own)
                self._lengths[shard] = length
        if self._num_samples() is not None:
            self._take_order(self._order())


def as_shards(loader: DataLoader[Any], num_ranks: int, *, exact: bool) -> ShardedDataset | None:
    """Returns the dataset of a loader if it has shards, and None for another one.

    A dataset with `num_shards` and `shard()`, such as Hugging Face's `IterableDataset`, becomes a `ShardedDataset`.
    Raises `NotExactError` if it has been divided among the ranks already.
    """
    dataset: Any = loader.dataset
    if isinstance(dataset, ShardedDataset):
        return dataset
    if not has_shards(dataset):
        return None
    if num_ranks > 1 and getattr(dataset, "_distributed", None) is not None:
        if not exact:
            return None
        raise NotExactError(
            f"{type(dataset).__name__} gives the part of one rank, whose own state does not hold all of its position",
            "leave out split_dataset_by_node(), since each batch is divided among the ranks here",
        )
    return ShardedDataset(range(dataset.num_shards), partial(_read_shard, dataset, dataset.num_shards))


def _read_shard(dataset: Any, num_shards: int, index: int) -> Any:
    return dataset.shard(num_shards=num_shards, index=index)


def _checksum(shards: Sequence[Any]) -> str:
    """Returns a checksum of the names of files. Their directories, and shards that are no files, do not count."""
    names = [Path(shard).name if isinstance(shard, str | os.PathLike) else "" for shard in shards]
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]
