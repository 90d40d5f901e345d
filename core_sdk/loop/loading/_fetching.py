"""Samples and batches under random numbers of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)

from core_sdk.loop import rng
from core_sdk.loop.loading._sampling import Form
from core_sdk.loop.plan import Draw


class Fetching(Dataset[Any]):
    """Stands between torch's loader and the user's dataset, in the training process or in the loader's workers.

    The generators of Python, NumPy and torch are seeded before each sample, by its position in the training, and before
    the batch is collated. So neither the number of workers nor a stop changes what a sample draws, and the generators
    of the training process stay as they are. That takes some ten microseconds a sample, so torch's own datasets that
    only index tensors, and its own ways to collate, are spared: they draw nothing.
    """

    def __init__(self, loader: DataLoader[Any], form: Form, seed: int) -> None:
        self._dataset: Any = loader.dataset
        self._collate: Callable[[Any], Any] = loader.collate_fn
        self._form = form
        self._fetches_at_once = _fetches_at_once(self._dataset)
        self._sample_key = rng.key(seed, "sample")
        self._collate_key = rng.key(seed, "collate")
        self._dataset_draws = not _draws_nothing(self._dataset)
        self._collate_draws = self._collate not in (default_collate, default_convert)

    def __getitems__(self, draw: Draw) -> Any:
        """The whole batch of a draw, where torch's loader expects a list of samples that it collates."""
        if (self._dataset_draws or self._collate_draws) and get_worker_info() is None:
            with rng.cpu_kept():
                return self._batch(draw)
        return self._batch(draw)

    def _batch(self, draw: Draw) -> Any:
        data = self._data(draw)
        if self._collate_draws:
            rng.seed_cpu(rng.key(self._collate_key, draw.start))
        return self._collate(data)

    def _data(self, draw: Draw) -> Any:
        indices, number = draw.indices, draw.start
        if self._form == "batch":
            indices = [*indices[0]]
            # Batches may have any size; so that no two samples share a number, each batch has a range of its own.
            number <<= 32
        if self._form == "one sample":
            return self._fetched(self._dataset.__getitem__, indices, draw, number)[0]
        if self._form == "indices":
            return self._fetched(self._dataset.__getitem__, [indices], draw, number)[0]
        if self._fetches_at_once:
            return self._fetched(self._dataset.__getitems__, [indices], draw, number)[0]
        return self._fetched(self._dataset.__getitem__, indices, draw, number)

    def _fetched(self, fetch: Callable[[Any], Any], keys: list[Any], draw: Draw, number: int) -> list[Any]:
        fetched = []
        try:
            for key in keys:
                if self._dataset_draws:
                    rng.seed_cpu(rng.key(self._sample_key, number))
                    number += 1
                fetched.append(fetch(key))
        except Exception as error:
            asked = keys[len(fetched)]
            error.add_note(f"This came from the dataset when it was asked for {asked!r}, in epoch {draw.epoch}.")
            raise
        return fetched


class WorkerStart:
    """What each worker process calls first: shows the user's own dataset in `get_worker_info()`, as torch does."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._dataset = loader.dataset
        self._worker_init_fn = loader.worker_init_fn

    def __call__(self, worker_id: int) -> None:
        object.__setattr__(get_worker_info(), "dataset", self._dataset)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker_id)


def as_it_is(batch: Any) -> Any:
    """Collates nothing: `Fetching` has done it."""
    return batch


def _draws_nothing(dataset: Any) -> bool:
    """Whether it is one of torch's datasets that only index tensors; a subclass may do more."""
    parts = _parts(dataset)
    return all(map(_draws_nothing, parts)) if parts else type(dataset) is TensorDataset


def _fetches_at_once(dataset: Any) -> bool:
    """Whether it gives several samples at once in a way of its own, or one of its parts does."""
    parts = _parts(dataset)
    gives_several = callable(getattr(dataset, "__getitems__", None))
    return gives_several and (not parts or any(map(_fetches_at_once, parts)))


def _parts(dataset: Any) -> list[Any]:
    """The datasets of which one of torch's consists."""
    kind = type(dataset)
    if kind is Subset:
        return [dataset.dataset]
    if kind is StackDataset:
        return [*(dataset.datasets.values() if isinstance(dataset.datasets, dict) else dataset.datasets)]
    return [*dataset.datasets] if kind is ConcatDataset else []
