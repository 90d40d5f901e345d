"""What exact resume costs: a seek into the middle of an epoch, memory, and each batch, beside torch's own loader.

python benchmarks/loop.py [--num-batches 40000]
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

from core_sdk import loop
from core_sdk.loop._orders import Listed, Order, Shuffled

NUM_TURNS = 5
TURN_LENGTH = 50
BATCH_SIZE = 4


class Indices(Dataset[int]):
    """As many samples as one likes, without memory."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        return index


class Rows(Dataset[torch.Tensor]):
    """A dataset such as users write; what it draws is not known beforehand."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._rows[index]


class NoisyRows(Rows):
    """The same with noise, as an augmentation draws it."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + random.random()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-batches", type=int, default=40_000)
    num_batches = parser.parse_args().num_batches
    torch.set_num_threads(1)
    for size, target in ((10**6, "20 ms"), (10**7, "100 ms")):
        seeking = median(partial(seek, size))
        shuffling = median(partial(seek_by_randperm, size))
        beside = f"(target <= {target}; randperm {shuffling * 1e3:.0f} ms)"
        print(f"seek, {size:>10,} samples   {seeking * 1e3:8.2f} ms   {beside}")
    print(f"seek, 10,000,000 by weight {median(seek_weighted) * 1e3:7.2f} ms")
    for name, make in ORDERS.items():
        print(f"memory of {name:<15}  {memory_of(make, 10**6) / 10**6:8.2f} bytes a sample   (target <= 8)")
    samples = torch.randn(num_batches * BATCH_SIZE, 1)
    compare_batches("from a TensorDataset", TensorDataset(samples), BATCH_SIZE, num_batches)
    compare_batches("from a dataset that draws nothing", Rows(samples), 32, num_batches // 10, 1.3)
    compare_batches("from a dataset that draws", NoisyRows(samples), 32, num_batches // 10, 1.5)


def seek(size: int) -> float:
    """From the middle of an epoch to its first batch, with all that a new process has to make."""
    loader = DataLoader(Indices(size), BATCH_SIZE, shuffle=True)
    state = {**loop.resumable(loader).state_dict(), "epoch": 3, "offset": size // 2}
    begin = time.perf_counter()
    resumed = loop.resumable(DataLoader(Indices(size), BATCH_SIZE, shuffle=True))
    resumed.load_state_dict(state)
    next(resumed.stream())
    return time.perf_counter() - begin


def seek_by_randperm(size: int) -> float:
    begin = time.perf_counter()
    torch.randperm(size, generator=torch.Generator().manual_seed(3))[size // 2 : size // 2 + BATCH_SIZE].tolist()
    return time.perf_counter() - begin


def seek_weighted() -> float:
    sampler = WeightedRandomSampler(torch.ones(10**7), 10**7)  # type: ignore[arg-type]
    begin = time.perf_counter()
    next(loop.resumable(DataLoader(Indices(10**7), BATCH_SIZE, sampler=sampler)).stream())
    return time.perf_counter() - begin


ORDERS: dict[str, Callable[[int], Order]] = {
    "a shuffle": lambda size: Shuffled(size, 0),
    "a user's sampler": lambda size: Listed(size, lambda epoch: range(size)),
}


def memory_of(make: Callable[[int], Order], size: int) -> int:
    """Returns the bytes of an order of the data that is in use, without tensors; weights take 8 bytes a sample."""
    tracemalloc.start()
    order = make(size)
    order.indices(0, torch.arange(3))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def compare_batches(what: str, data: Dataset[Any], batch_size: int, num_batches: int, target: float = 1.0) -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(data, batch_size, shuffle=True)

    loader_batches = iter(loader()), loop.resumable(loader()).stream()
    # In short turns, so that a noisy neighbour disturbs both alike.
    turns = range(num_batches // TURN_LENGTH)
    plain, resumable = zip(*[[seconds_of(batches) for batches in loader_batches] for _ in turns], strict=True)
    print(f"a batch of {batch_size} {what}")
    for name, seconds in (("DataLoader", plain), ("resumable(DataLoader)", resumable)):
        batch = sorted(each / TURN_LENGTH * 1e6 for each in seconds)
        print(f"    {name:<22} median {batch[len(batch) // 2]:8.2f} µs, minimum {batch[0]:8.2f} µs")
    differences = [(ours - theirs) / TURN_LENGTH * 1e6 for theirs, ours in zip(plain, resumable, strict=True)]
    print(f"    {'the difference':<22} median {statistics.median(differences):+8.2f} µs")
    ratio = min(resumable) / min(plain)
    print(f"    {'ratio of the minima':<22}        {ratio:8.2f}   (target <= {target})")


def seconds_of(batches: Iterator[object]) -> float:
    """Returns the processor's seconds, which other processes change less than the time on a clock."""
    begin = time.process_time()
    for _ in islice(batches, TURN_LENGTH):
        pass
    return time.process_time() - begin


def median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(NUM_TURNS))


if __name__ == "__main__":
    main()
