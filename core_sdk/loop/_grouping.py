"""Batches of similar samples, such as sentences of about the same length or images of the same shape."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

import torch
from torch.utils.data import Sampler

from core_sdk.loop._orders import Shuffled
from core_sdk.loop._rng import key


class GroupedBatchSampler(Sampler[list[int]]):
    """A batch sampler that shuffles, and takes the samples of each batch from one group.

        lengths = torch.tensor([len(text) for text in texts])
        groups = torch.bucketize(lengths, torch.tensor([64, 128, 256])).tolist()
        loader = DataLoader(dataset, batch_sampler=GroupedBatchSampler(groups, batch_size=32))

    The order is a function of the seed and the epoch, so that `resumable()` can resume exactly. On several ranks each
    rank takes whole batches.
    """

    def __init__(self, groups: Iterable[Hashable], batch_size: int, *, drop_last: bool = False, seed: int = 0) -> None:
        """`groups` has the group of each sample. `drop_last` drops the samples of a group that do not fill a batch.

        Raises `ValueError` if there are no batches.
        """
        if batch_size < 1:
            raise ValueError(f"a batch of {batch_size} samples: give 1 or more")
        members: dict[Hashable, list[int]] = {}
        for index, group in enumerate(groups):
            members.setdefault(group, []).append(index)
        self._members = [torch.tensor(indices) for indices in members.values()]
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._seed = seed
        self._epoch = 0
        if len(self) == 0:
            raise ValueError(f"no group has the {batch_size} samples of a batch: make the batches smaller")

    def __len__(self) -> int:
        counts = map(len, self._members)
        return sum(count // self._batch_size if self._drop_last else -(-count // self._batch_size) for count in counts)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of an epoch. `resumable()` calls it."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        batches = [batch for group, members in enumerate(self._members) for batch in self._batches(group, members)]
        return (batches[number].tolist() for number in self._shuffled(len(batches), "batches"))

    def _batches(self, group: int, members: torch.Tensor) -> Iterator[torch.Tensor]:
        shuffled = members[self._shuffled(len(members), group)]
        for start in range(0, len(members), self._batch_size):
            batch = shuffled[start : start + self._batch_size]
            if len(batch) == self._batch_size or not self._drop_last:
                yield batch

    def _shuffled(self, count: int, what: int | str) -> list[int]:
        return Shuffled(count, key(self._seed, "grouping", what)).indices(self._epoch, torch.arange(count))
