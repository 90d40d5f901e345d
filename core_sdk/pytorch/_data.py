"""The data of a trial: the loader that its methods return, and batches of nested tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, Sampler
from torch.utils.data import DataLoader as TorchDataLoader

from core_sdk.loop._moving import is_array
from core_sdk.loop._sharded_dataset import has_shards
from core_sdk.pytorch import samplers

TorchData: TypeAlias = dict[str, torch.Tensor] | Sequence[torch.Tensor] | torch.Tensor
"""A batch: a tensor, or a sequence or a dictionary of tensors, which may be nested."""


class DataLoader(TorchDataLoader[Any]):
    """The loader that `build_training_data_loader()` and `build_validation_data_loader()` return.

    It is a `DataLoader` of torch, with the same arguments. `batch_size` counts the samples of one rank. The `Trainer`
    reads the dataset, the samplers and all other options from it, divides each global batch among the ranks, and
    resumes after a stop with the very next sample.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ) -> None:
        """Raises `ValueError` for an iterable dataset without shards, and if there is no batch size."""
        if isinstance(dataset, IterableDataset) and not has_shards(dataset):
            raise ValueError(
                f"pytorch.DataLoader takes a dataset with __getitem__() and __len__(), or with shards, and "
                f"{type(dataset).__name__} is an IterableDataset without shards. Give its shards to a "
                "loop.ShardedDataset, or return torch.utils.data.DataLoader, or torchdata's StatefulDataLoader, and "
                "call context.experimental.disable_dataset_reproducibility_checks() in __init__()."
            )
        if batch_size is None and batch_sampler is None:
            raise ValueError("batch_size is None, and there is no batch_sampler: give one of them")
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
        )

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> TorchDataLoader[Any]:
        """Returns a loader of torch's for loops without a `Trainer`. See `adapt_batch_sampler()`."""
        batch_sampler: Any = self.batch_sampler
        return TorchDataLoader(
            self.dataset,
            batch_sampler=adapt_batch_sampler(batch_sampler, repeat, skip, num_replicas, rank),
            num_workers=self.num_workers,
            collate_fn=self.collate_fn,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            generator=self.generator,
            prefetch_factor=self.prefetch_factor,
            persistent_workers=self.persistent_workers,
        )


def adapt_batch_sampler(
    batch_sampler: BatchSampler | Iterable[Any],
    repeat: bool = False,
    skip: int = 0,
    num_replicas: int = 1,
    rank: int = 0,
) -> BatchSampler | Iterable[Any]:
    """Repeats batches without an end, takes every `num_replicas`-th of them for `rank`, and skips the first `skip`."""
    if repeat:
        batch_sampler = samplers.RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = samplers.DistributedBatchSampler(batch_sampler, num_replicas, rank)
    if skip > 0:
        batch_sampler = samplers.SkipBatchSampler(batch_sampler, skip)
    return batch_sampler


def data_length(data: Any) -> int:
    """Returns the number of samples in a batch: the length of its first tensor or array.

    Raises `ValueError` for an empty dictionary or sequence, and `TypeError` for anything else.
    """
    if isinstance(data, torch.Tensor) or is_array(data):
        return len(data)
    if isinstance(data, dict):
        return data_length(_first(data.values()))
    if isinstance(data, (list, tuple)):
        return data_length(_first(data))
    raise TypeError(
        f"a batch that holds {type(data).__name__} has no length that could be told: override get_batch_length()"
    )


def _first(values: Iterable[Any]) -> Any:
    for value in values:
        return value
    raise ValueError("the batch is empty: it has no tensor that would tell its length")
