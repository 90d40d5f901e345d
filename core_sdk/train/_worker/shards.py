"""A worker's part of a dataset that the trainer was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from core_sdk.core import DistributedContext
from core_sdk.loop import ShardedDataset, resumable
from core_sdk.loop._moving import to_device
from core_sdk.loop._sharded_dataset import has_shards
from core_sdk.train._worker.epochs import Epochs

_BATCH_SIZE = 256


class DatasetShard:
    """A worker's part of a dataset, as `get_dataset_shard()` returns it. Each iteration is an epoch.

    A batch size counts the samples of one worker. All workers get the same number of batches. `state_dict()` and
    `load_state_dict()` resume at the very next sample, also on another number of workers.
    """

    def __init__(self, dataset: Any, distributed: DistributedContext | None, device: torch.device) -> None:
        """`distributed` is None for a dataset that is not divided."""
        is_sized = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        if not is_sized and not isinstance(dataset, Iterable):
            raise TypeError(f"a dataset must be iterable, or have __getitem__ and __len__; {type(dataset)} has neither")
        self._distributed = distributed or DistributedContext()
        # Any other iterable is read in sequence, as a dataset with one shard.
        self._dataset = dataset if is_sized or has_shards(dataset) else ShardedDataset([dataset], _itself)
        self._device = device
        self._state: dict[str, Any] | None = None
        self._epochs: Epochs | None = None

    def iter_torch_batches(
        self,
        *,
        batch_size: int = _BATCH_SIZE,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        shuffle: bool = False,
        num_workers: int = 0,
    ) -> Iterator[Any]:
        """Yields the batches of one epoch, as tensors on this worker's device."""
        for batch in self._batches(batch_size, collate_fn, drop_last, shuffle, num_workers):
            yield to_device(batch, self._device)

    def iter_batches(
        self, *, batch_size: int = _BATCH_SIZE, drop_last: bool = False, shuffle: bool = False
    ) -> Iterator[list[Any]]:
        """Yields the batches of one epoch, as lists of samples."""
        yield from self._batches(batch_size, list, drop_last, shuffle, 0)

    def iter_rows(self) -> Iterator[Any]:
        """Yields the samples of one epoch."""
        for batch in self._batches(1, list, False, False, 0):
            yield from batch

    def __iter__(self) -> Iterator[Any]:
        return self.iter_rows()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position, as plain values."""
        return self._state or {} if self._epochs is None else self._epochs.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on at the position of a state. It must ask for the same kind of batches."""
        self._state = dict(state)
        self._epochs = None

    def _batches(
        self, batch_size: int, collate_fn: Any, drop_last: bool, shuffle: bool, num_workers: int
    ) -> Iterator[Any]:
        if shuffle and isinstance(self._dataset, IterableDataset):
            raise ValueError("shuffle=True needs a dataset with __getitem__() and __len__(), or a loop.ShardedDataset")
        last, earlier = self._epochs, self.state_dict()
        loader: DataLoader[Any] = DataLoader(
            self._dataset,
            batch_size=batch_size,
            shuffle=shuffle or None,
            collate_fn=collate_fn,
            drop_last=drop_last,
            num_workers=num_workers,
        )
        self._epochs = Epochs(resumable(loader, distributed=self._distributed))
        if earlier:
            self._epochs.load_state_dict(earlier)
        if last is not None and last.is_under_way:
            self._epochs.set_epoch(earlier["epoch"] + 1)
        return iter(self._epochs)


def _itself(samples: Any) -> Any:
    return samples
