"""Fetches samples and batches with random numbers that depend on their position only."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from core_sdk.errors import DataError
from core_sdk.loop import _rng as rng
from core_sdk.loop._loading._sampling import Form
from core_sdk.loop._loading._shards import EpochEndError, ShardReader
from core_sdk.loop._plan import Draw

_Seeds: TypeAlias = Collection[Callable[[int], object]]
"""Functions that seed the generators before each sample."""


class Fetching(Dataset[Any]):
    """A dataset between torch's loader and the user's dataset, in the training process or in the loader's workers.

    The generators of Python, NumPy and torch are seeded before each sample, by its position in the training, and before
    the batch is collated. So neither the number of workers nor a stop changes the random numbers of a sample.
    Afterwards the generators are put back.

    With many datasets, seeding takes longer than fetching a sample. So a generator that the first batch did not use is
    only watched: if it is used for a later batch, that batch is fetched again with this generator seeded too.
    Torch's own datasets of tensors need not be watched. The rows of a `TensorDataset` are taken all at once. Torch's
    own collate functions draw nothing.
    """

    def __init__(self, loader: DataLoader[Any], form: Form, seed: int) -> None:
        self._dataset: Any = loader.dataset
        self._collate: Callable[[Any], Any] = loader.collate_fn
        self._form = form
        self._fetches_at_once = _fetches_at_once(self._dataset)
        self._sample_key = rng.key(seed, "sample")
        self._collate_key = rng.key(seed, "collate")
        self._collates_as_torch = self._collate in (default_collate, default_convert)
        self._draws_nothing = self._collates_as_torch and _draws_nothing(self._dataset)
        self._has_rows = form == "samples" and self._collate is default_collate and _has_rows(self._dataset)
        self._drawn: set[rng.CPUGenerator] | None = None

    def __getitems__(self, draw: Draw) -> Any:
        """Returns the collated batch of a draw. Torch's loader expects a list of samples, which it would collate."""
        if self._has_rows and (rows := _rows(self._dataset, draw.indices)) is not None:
            return rows
        if self._draws_nothing:
            return self._batch(draw, ())
        state, is_unchanged = rng.CPUState(), False
        try:
            if self._drawn is None:
                watch = _GeneratorWatch()
                batch = self._batch(draw, [watch.seed])
                self._drawn = watch.drawn()
                return batch
            while True:
                try:
                    batch = self._batch(draw, [generator.seed for generator in self._drawn])
                except Exception:
                    # Numbers of an unseeded generator may have caused the error. Then the batch is fetched again.
                    if not self._has_drawn_late(state, self._drawn):
                        raise
                else:
                    if not self._has_drawn_late(state, self._drawn):
                        is_unchanged = not self._drawn
                        return batch
        finally:
            if not is_unchanged:
                state.restore()

    def _has_drawn_late(self, before: rng.CPUState, drawn: set[rng.CPUGenerator]) -> bool:
        """Returns whether generators that were not seeded have been used. Puts them back, and adds them to `drawn`."""
        if late := before.changed(drawn):
            before.restore()
            drawn |= late
        return bool(late)

    def _batch(self, draw: Draw, seeds: _Seeds) -> Any:
        data = self._data(draw, seeds)
        if seeds and not self._collates_as_torch:
            key = rng.key_of(self._collate_key, draw.start)
            for seed in seeds:
                seed(key)
        return self._collate(data)

    def _data(self, draw: Draw, seeds: _Seeds) -> Any:
        indices, number = draw.indices, draw.start
        fetch, gives_several = self._dataset.__getitem__, False
        if self._form == "batch":
            indices = [*indices[0]]
            # Batches may have any size. Each has a range of numbers of its own, so that no two samples share a number.
            number <<= 32
        if self._form == "indices":
            indices, gives_several = [indices], True
        elif self._fetches_at_once and self._form != "one sample":
            fetch, indices, gives_several = self._dataset.__getitems__, [indices], True
        fetched: list[Any] = []
        try:
            if seeds:
                for offset, index in enumerate(indices):
                    key = rng.key_of(self._sample_key, number + offset)
                    for seed in seeds:
                        seed(key)
                    fetched.append(fetch(index))
            else:
                for index in indices:
                    fetched.append(fetch(index))
        except Exception as error:
            error.add_note(f"This came from the dataset when it was asked for {index!r}, in epoch {draw.epoch}.")
            raise
        return fetched[0] if gives_several or self._form == "one sample" else fetched


class ShardFetching(Fetching):
    """A `Fetching` for a dataset that comes in shards.

    Returns each batch with the lengths of the shards, unless all of them were known before. The batch is None if the
    epoch ends before the end of the global batch. It is the `DataError` of a shard that has changed, which torch
    would raise as a `RuntimeError` if it came from a worker.
    """

    def __init__(self, loader: DataLoader[Any], form: Form, seed: int, reader: ShardReader) -> None:
        super().__init__(loader, form, seed)
        self._reader = reader
        # All generators are only watched at first: the first batch may come after many samples that are left out.
        self._drawn = set()

    def __getitems__(self, draw: Draw) -> tuple[Any, list[int | None]]:
        was_known = None not in self._reader.lengths
        try:
            batch = super().__getitems__(draw)
        except EpochEndError:
            return None, [*self._reader.lengths]
        except DataError as error:
            return error, []
        return batch, [] if was_known else [*self._reader.lengths]

    def _has_drawn_late(self, before: rng.CPUState, drawn: set[rng.CPUGenerator]) -> bool:
        if has_drawn_late := super()._has_drawn_late(before, drawn):
            self._reader.close()
        return has_drawn_late

    def _data(self, draw: Draw, seeds: _Seeds) -> Any:
        def seed_all(key: int) -> None:
            for seed in seeds:
                seed(key)

        try:
            fetched = [self._reader.sample(epoch, position, seed_all) for epoch, position in draw.indices]
            if None in self._reader.lengths and not draw.is_epoch_end:
                self._reader.check(draw.epoch, draw.offset - 1, seed_all)
        except BaseException:
            self._reader.close()
            raise
        return fetched[0] if self._form == "one sample" else fetched


class _GeneratorWatch:
    """Seeds all generators, and finds out which of them are used after that."""

    def __init__(self) -> None:
        self._drawn: set[rng.CPUGenerator] = set()
        self._state: rng.CPUState | None = None

    def seed(self, seed: int) -> None:
        self.drawn()
        rng.seed_cpu(seed)
        self._state = rng.CPUState()

    def drawn(self) -> set[rng.CPUGenerator]:
        if self._state is not None:
            self._drawn |= self._state.changed()
        return self._drawn


class WorkerStart:
    """Prepares a worker process: `get_worker_info()` then has the user's own dataset, as in torch's loader.

    It leaves Ctrl-C, which a terminal sends to all processes, to the script, which may still need its batches.

    Also calls the user's `worker_init_fn`. With shards, each worker looks like the only one, so that an iterable which
    divides its samples among the workers gives all of them.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._dataset = loader.dataset
        self._worker_init_fn = loader.worker_init_fn

    def __call__(self, worker_id: int) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not forked from within a Context
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        info = get_worker_info()
        object.__setattr__(info, "dataset", self._dataset)
        if isinstance(self._dataset, IterableDataset):
            object.__setattr__(info, "id", 0)
            object.__setattr__(info, "num_workers", 1)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker_id)


def as_it_is(batch: Any) -> Any:
    """Returns the batch unchanged, since `Fetching` has collated it."""
    return batch


def _draws_nothing(dataset: Any) -> bool:
    """Returns whether it is one of torch's datasets that only index tensors.

    Subclasses may do more, and do not count.
    """
    parts = _parts(dataset)
    return all(map(_draws_nothing, parts)) if parts else type(dataset) is TensorDataset


def _has_rows(dataset: Any) -> bool:
    return type(dataset) is TensorDataset or (type(dataset) is Subset and _has_rows(dataset.dataset))


def _rows(dataset: Any, indices: list[Any]) -> list[torch.Tensor] | None:
    """Returns the collated samples, by one operation for each tensor; None if the keys are not integers."""
    while type(dataset) is Subset:
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    try:
        rows = torch.tensor(indices)
    except (RuntimeError, TypeError, ValueError):
        return None
    return [tensor[rows] for tensor in dataset.tensors] if rows.dtype is torch.int64 and rows.ndim == 1 else None


def _fetches_at_once(dataset: Any) -> bool:
    """Returns whether the dataset, or a dataset in it, has its own way to give several samples at once."""
    parts = _parts(dataset)
    gives_several = callable(getattr(dataset, "__getitems__", None))
    return gives_several and (not parts or any(map(_fetches_at_once, parts)))


def _parts(dataset: Any) -> list[Any]:
    """Returns the datasets of which a dataset of torch's consists."""
    kind = type(dataset)
    if kind is Subset:
        return [dataset.dataset]
    if kind is StackDataset:
        return [*(dataset.datasets.values() if isinstance(dataset.datasets, dict) else dataset.datasets)]
    return [*dataset.datasets] if kind is ConcatDataset else []
