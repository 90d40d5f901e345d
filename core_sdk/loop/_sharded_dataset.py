"""A dataset in shards, such as files, which is read in sequence and still resumes exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from torch.utils.data import IterableDataset, get_worker_info


class Indexed(Protocol):
    """Samples that can be taken in any order, such as a list or a dataset of torch."""

    def __getitem__(self, index: int) -> Any: ...

    def __len__(self) -> int: ...


Samples = Iterable[Any] | Indexed
"""The samples of a shard."""


class ShardedDataset(IterableDataset[Any]):
    """A dataset in shards, such as files. `resumable()` resumes it exactly on any number of ranks and loader workers.

        def read(path):
            with open(path) as file:
                yield from map(json.loads, file)

        dataset = ShardedDataset(sorted(Path("data").glob("*.jsonl")), read, shuffle=True)
        loader = resumable(DataLoader(dataset, batch_size=32, num_workers=4))

    An epoch goes through all shards, one after the other. `read(shard)` returns the samples of a
    shard, the same ones each time. If they are a sequence, with `__getitem__()` and `__len__()`, each loader worker of
    each rank takes only its own ones. Otherwise each worker reads the whole shard, and leaves out the samples of the
    others. So let an iterable give what is cheap to read, such as lines, and decode it in `transform`, which is called
    only for the samples that a worker needs.
    """

    def __init__(
        self,
        shards: Iterable[Any],
        read: Callable[[Any], Samples],
        *,
        lengths: Iterable[int | None] | None = None,
        transform: Callable[[Any], Any] | None = None,
        shuffle: bool = False,
        shuffle_block_size: int = 1000,
    ) -> None:
        """`shards` are in the same order on all ranks and after each stop: sort what a directory lists.

        `lengths` has the number of samples of each shard, or None where it is unknown. Unknown lengths are learnt in
        the first epoch. `shuffle` changes the order of the shards in each epoch, and of the samples within blocks
        of `shuffle_block_size` samples, which may span several shards. Each worker holds a block of an iterable in
        memory. Raises `ValueError` for arguments that do not fit each other.
        """
        self.shards: Sequence[Any] = [*shards]
        """The shards, as they are given to `read`."""
        self.read = read
        self.lengths = [None] * len(self.shards) if lengths is None else [*lengths]
        self.transform = transform
        self.shuffle = shuffle
        self.block_size = shuffle_block_size if shuffle else 1
        if not self.shards:
            raise ValueError("there are no shards: look where their files are, and how their names are matched")
        if len(self.lengths) != len(self.shards):
            raise ValueError(f"there are {len(self.lengths)} lengths and {len(self.shards)} shards: give one for each")
        if any(length is not None and length < 0 for length in self.lengths):
            raise ValueError("a shard has a length below 0")
        if shuffle_block_size < 1:
            raise ValueError(f"shuffle_block_size is {shuffle_block_size}: give 1 or more")

    def __iter__(self) -> Iterator[Any]:
        """Yields the samples of all shards in order, for a use without `resumable()`.

        In a loader worker, yields the samples of this worker's shards.
        """
        worker = get_worker_info()
        number, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for shard in islice(self.shards, number, None, step):
            samples: Any = self.read(shard)
            if is_sequence(samples):
                samples = map(samples.__getitem__, range(len(samples)))
            yield from samples if self.transform is None else map(self.transform, samples)


def is_sequence(samples: Any) -> bool:
    """Returns whether the samples can be taken in any order.

    An iterable dataset cannot, though it may have a length.
    """
    has_indices = hasattr(samples, "__getitem__") and hasattr(samples, "__len__")
    return has_indices and not isinstance(samples, IterableDataset)


def has_shards(dataset: Any) -> bool:
    """Returns whether `resumable()` divides the dataset by its shards, as a `ShardedDataset` or one of Hugging Face."""
    if isinstance(dataset, ShardedDataset):
        return True
    has_method = callable(getattr(dataset, "shard", None))
    return isinstance(dataset, IterableDataset) and has_method and isinstance(getattr(dataset, "num_shards", None), int)
