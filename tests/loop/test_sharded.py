"""A dataset in shards resumes exactly, on any number of ranks and of loader workers."""

from __future__ import annotations

import importlib
import pickle
import random
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop.test_resumable import ranked
from loop.toy_datasets import Forgetful
from parts import needs
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from core_sdk import errors, loop
from core_sdk.loop._plan import LastBatch

LENGTHS = [5, 0, 17, 1, 30, 3, 0]
"""More shards than ranks, of very different sizes."""
NUM_SAMPLES = sum(LENGTHS)
LAST_BATCHES: list[LastBatch] = ["keep", "drop", "carry"]

Batch = tuple[list[Any], bool, int]
"""The samples of a global batch, whether it is the last one of an epoch, and its number of samples."""


def as_iterable(shard: int) -> Iterator[tuple[int, float, float, float]]:
    """Yields each sample with the random numbers that it draws."""
    for number in range(LENGTHS[shard]):
        yield 100 * shard + number, random.random(), float(np.random.normal()), float(torch.rand(()))


def as_sequence(shard: int) -> range:
    return range(100 * shard, 100 * shard + LENGTHS[shard])


def with_draws(number: int) -> tuple[int, float, float, float]:
    return number, random.random(), float(np.random.normal()), float(torch.rand(()))


def dataset(kind: str = "iterable", is_known: bool = False, shuffle: bool = False) -> loop.ShardedDataset:
    return loop.ShardedDataset(
        range(len(LENGTHS)),
        as_iterable if kind == "iterable" else as_sequence,
        lengths=LENGTHS if is_known else None,
        transform=None if kind == "iterable" else with_draws,
        shuffle=shuffle,
        shuffle_block_size=8,
    )


def global_batches(
    data: Any,
    num_ranks: int,
    count: int,
    state: dict[str, Any] | None = None,
    *,
    num_workers: int = 0,
    last_batch: LastBatch = "keep",
) -> tuple[list[Batch], list[dict[str, Any]]]:
    """Returns the batches of all ranks together, of 6 samples, and the state before each and after the last one."""
    parts: list[list[Batch]] = []
    for rank in range(num_ranks):
        loader = loop.resumable(
            DataLoader(data, 6, num_workers=num_workers, collate_fn=list),
            seed=3,
            last_batch=last_batch,
            distributed=ranked(rank, num_ranks),
            shares_batch=True,
        )
        if state is not None:
            loader.load_state_dict(state)
        part: list[Batch] = []
        states = [loader.state_dict()]
        for draw, batch in islice(loader.stream(), count):
            part.append(([] if draw.is_filler else batch, draw.is_epoch_end, draw.num_global))
            states.append(loader.state_dict())
        parts.append(part)
    whole = [([*chain(*(each[0] for each in batch))], *batch[0][1:]) for batch in zip(*parts, strict=True)]
    return whole, states


GRID = [
    (kind, shuffle, is_known, last_batch)
    for kind in ("iterable", "sequence")
    for shuffle in (True, False)
    for is_known in (False, True)
    for last_batch in LAST_BATCHES
]


@pytest.mark.parametrize(("kind", "shuffle", "is_known", "last_batch"), GRID)
def test_every_stop_resumes_with_the_same_global_batches(
    kind: str, shuffle: bool, is_known: bool, last_batch: LastBatch
) -> None:
    """A resume at any batch on 1, 2 or 3 ranks gives the same global batches, also from workers."""
    data = dataset(kind, is_known, shuffle)
    expected, _ = global_batches(data, 1, 23, last_batch=last_batch)
    if last_batch == "keep":
        numbers = [sample[0] for samples, *_ in expected[:10] for sample in samples]
        assert sorted(numbers) == [number for shard in range(len(LENGTHS)) for number in as_sequence(shard)]
        assert (numbers == sorted(numbers)) is not shuffle

    for num_ranks in (1, 2, 3):
        whole, states = global_batches(data, num_ranks, 23, num_workers=2, last_batch=last_batch)
        assert whole == expected, num_ranks
        for index in range(20):
            others = (num_ranks + index) % 3 + 1
            resumed, _ = global_batches(data, others, 3, states[index], last_batch=last_batch)
            assert resumed == expected[index : index + 3], (num_ranks, others, index)


@pytest.mark.parametrize("kind", ["iterable", "sequence"])
def test_loaders_with_workers_resume_after_every_batch(kind: str) -> None:
    """Loaders with workers resume after every batch, also in an epoch of unknown length."""
    data = dataset(kind, shuffle=True)
    expected, states = global_batches(data, 1, 23, num_workers=2)

    for index in range(21):
        for num_ranks in (1, 2, 3):
            resumed, _ = global_batches(data, num_ranks, 2, states[index], num_workers=2)
            assert resumed == expected[index : index + 2], (num_ranks, index)


def test_a_batch_size_of_each_rank_leaves_the_order_as_it_is() -> None:
    """More ranks with the same batch size read the same order in larger global batches."""

    def samples(num_ranks: int) -> list[Any]:
        parts = [
            loop.resumable(DataLoader(dataset(shuffle=True), 2, collate_fn=list), distributed=ranked(rank, num_ranks))
            for rank in range(num_ranks)
        ]
        return [sample for batches in zip(*parts, strict=True) for batch in batches for sample in batch]

    expected = samples(1)
    assert len(expected) == NUM_SAMPLES
    assert samples(2) == samples(4) == expected
    assert samples(9)[:54] == expected[:54]  # some of nine ranks repeat one of the two samples that are left


def test_an_epoch_shuffles_shards_and_the_samples_within_blocks() -> None:
    """Shards and samples within blocks are shuffled in each epoch, and a block may span shards."""
    whole = loop.ShardedDataset(range(40), lambda shard: [3 * shard, 3 * shard + 1, 3 * shard + 2], shuffle=True)
    blocks = loop.ShardedDataset(range(4), lambda shard: range(30 * shard, 30 * shard + 30), shuffle=True,
                                 shuffle_block_size=10)  # fmt: skip
    mixed, by_blocks = (loop.resumable(DataLoader(each, batch_size=None)) for each in (whole, blocks))

    first, second = list(mixed), list(mixed)
    in_blocks = list(by_blocks)

    assert sorted(first) == sorted(second) == sorted(in_blocks) == list(range(120))
    assert first != second
    assert len({sample // 3 for sample in first[:20]}) > 7
    for start in range(0, 120, 10):
        block = in_blocks[start : start + 10]
        assert max(block) - min(block) == 9
        assert block != sorted(block)


def test_unknown_lengths_are_learnt() -> None:
    """Lengths of shards are learnt while reading, and a resume does not read earlier shards again."""
    opened: list[int] = []

    def read(shard: int) -> Iterator[int]:
        opened.append(shard)
        yield from as_sequence(shard)

    data = loop.ShardedDataset(range(len(LENGTHS)), read)
    loader = loop.resumable(DataLoader(data, 6))
    with pytest.raises(TypeError, match="this loader has no length"):
        len(loader)
    assert len([*islice(loader, 6)]) == 6
    middle = loader.state_dict()
    assert middle["lengths"] == [5, 0, 17, 1, None, None, None]
    opened.clear()

    resumed = loop.resumable(DataLoader(data, 6))
    resumed.load_state_dict(middle)
    assert len(list(resumed)) == 4
    assert opened[0] == 4
    assert len(resumed) == resumed.batches_per_epoch == 10
    assert len(list(resumed.single_pass())) == 10


def test_a_pass_over_data_of_unknown_length_is_complete() -> None:
    """A pass over data of unknown length is complete and the same each time."""
    loader = loop.resumable(DataLoader(dataset(shuffle=True), 6, num_workers=2, collate_fn=list))

    passes = [[batch for _, batch in loader.single_pass()] for _ in range(2)]

    assert passes[0] == passes[1]
    assert sum(map(len, passes[0])) == NUM_SAMPLES
    assert [draw.is_epoch_end for draw, _ in loader.single_pass()] == [False] * 9 + [True]


def test_shards_without_an_end_are_read_on() -> None:
    """Shards without an end are read in an endless epoch."""

    def read(first: int) -> Iterator[int]:
        while True:
            yield first
            first += 1

    loader = loop.resumable(DataLoader(loop.ShardedDataset([5], read), 4))

    assert [batch.tolist() for _, batch in islice(loader.stream(), 2)] == [[5, 6, 7, 8], [9, 10, 11, 12]]


class Files:
    """Shards that are text files with a sample per line."""

    def __init__(self, directory: Path, **lengths: int) -> None:
        directory.mkdir(exist_ok=True)
        for name, length in lengths.items():
            (directory / name).write_text("".join(f"{name}{number}\n" for number in range(length)))
        self.paths = sorted(directory.iterdir())

    def loader(self, lengths: list[int] | None = None, num_workers: int = 0, **options: Any) -> loop.ResumableLoader:
        data = loop.ShardedDataset(self.paths, self.read, lengths=lengths, **options)
        return loop.resumable(DataLoader(data, 2, collate_fn=list, num_workers=num_workers))

    @staticmethod
    def read(path: Path) -> Iterator[str]:
        with path.open() as file:
            yield from map(str.strip, file)


def test_data_that_have_changed_are_refused(tmp_path: Path) -> None:
    """Other shards, or a shard of another length, are refused."""
    loader = Files(tmp_path / "before", a=3, b=5).loader()
    next(loader.stream())
    begun = loader.state_dict()
    assert len([*loader]) == 3
    state = loader.state_dict()

    def resumed(directory: str, num_workers: int = 0, **lengths: int) -> loop.ResumableLoader:
        other = Files(tmp_path / directory, **lengths).loader(num_workers=num_workers)
        other.load_state_dict(state)
        return other

    assert len([*resumed("moved", a=3, b=5)]) == 4
    with pytest.raises(errors.DataError, match="the number of shards was 2 and is 3"):
        resumed("more", a=3, b=5, c=1)
    with pytest.raises(errors.DataError, match="checksum of the names of the shards, in order, was"):
        resumed("renamed", a=3, c=5)
    with pytest.raises(errors.DataError, match=r"the length of shard .*b'\) was 5 and is 4"):
        [*resumed("shorter", num_workers=2, a=3, b=4)]
    with pytest.raises(errors.DataError, match=r"the length of shard .*a'\) was 3 and is more"):
        [*resumed("longer", a=4, b=5)]
    with pytest.raises(errors.DataError, match=r"the length of shard .*b'\) was 5 and is 6"):
        Files(tmp_path / "before").loader([3, 6]).load_state_dict(state)
    with pytest.raises(errors.DataError, match="the order of the data was shards and is shards shuffled"):
        Files(tmp_path / "before").loader(shuffle=True).load_state_dict(begun)
    with pytest.raises(errors.DataError, match=r"the length of shard .*a'\) was 2 and is more"):
        [*Files(tmp_path / "before").loader([2, 5])]


def test_arguments_that_do_not_fit_are_refused() -> None:
    """Invalid arguments are refused with advice."""
    with pytest.raises(ValueError, match="there are no shards"):
        loop.ShardedDataset([], as_sequence)
    with pytest.raises(ValueError, match="there are 1 lengths and 2 shards"):
        loop.ShardedDataset([0, 1], as_sequence, lengths=[3])
    with pytest.raises(ValueError, match="a length below 0"):
        loop.ShardedDataset([0], as_sequence, lengths=[-1])
    with pytest.raises(ValueError, match="shuffle_block_size is 0"):
        loop.ShardedDataset([0], as_sequence, shuffle_block_size=0)
    with pytest.raises(ValueError, match="there are no data"):
        next(loop.resumable(DataLoader(loop.ShardedDataset([1, 6], as_sequence))).stream())


def test_a_failing_sample_is_named() -> None:
    """A sample that fails is named, and the loader can be used again."""

    def read(shard: str) -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("a broken sample")

    for lengths in (None, [4]):
        loader = loop.resumable(DataLoader(loop.ShardedDataset(["a shard"], read, lengths=lengths), 1))
        for _ in range(2):
            with pytest.raises(ZeroDivisionError) as caught:
                list(loader)
            assert caught.value.__notes__ == ["This came from sample 1 of shard 'a shard'."]


def test_a_sequence_gives_only_what_a_rank_needs() -> None:
    """From a sequence only the rank's own samples are read."""
    taken: list[int] = []

    class Rows:
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> int:
            taken.append(index)
            return index

    data = loop.ShardedDataset([0], lambda _: Rows(), lengths=[12])
    loader = loop.resumable(DataLoader(data, 2), distributed=ranked(1, 3))

    assert [batch.tolist() for batch in loader] == [[2, 3], [8, 9]]
    assert taken == [2, 3, 8, 9]


class Dividing(IterableDataset[int]):
    """Numbers that the workers of a loader divide among each other."""

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        return iter(range(10) if worker is None else range(worker.id, 10, worker.num_workers))


def test_a_shard_that_workers_would_divide_is_read_as_a_whole() -> None:
    """A shard that would be divided among workers is read as a whole."""
    loader = loop.resumable(DataLoader(loop.ShardedDataset([Dividing()], iter), 4, num_workers=2))

    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


class DrawingLate:
    """Draws from Python's generator in one late sample only."""

    @staticmethod
    def read(shard: int) -> Iterator[tuple[int, float, float]]:
        for number in range(12):
            yield number, float(torch.rand(())), random.random() if number == 9 else 0.0


def test_a_generator_that_is_drawn_from_late_draws_by_the_position() -> None:
    """A generator that only a late sample uses draws by the position, too."""
    data = loop.ShardedDataset([0], DrawingLate.read)
    random.seed(3)
    before = random.getstate()
    expected, states = global_batches(data, 1, 4)

    assert random.getstate() == before
    for num_ranks, index in ((1, 1), (2, 1), (3, 0)):
        assert global_batches(data, num_ranks, 4 - index, states[index])[0] == expected[index:]


def test_without_resumable_each_worker_reads_its_shards() -> None:
    """Without resumable() each worker of a torch loader reads its own shards."""
    data = loop.ShardedDataset(range(4), as_sequence, transform=lambda number: number + 1)

    assert [*data] == [number + 1 for shard in range(4) for number in as_sequence(shard)]
    loaded = [int(number) for number in DataLoader(data, None, num_workers=2)]
    assert sorted(loaded) == sorted(data)


def test_shards_that_are_divided_already_are_refused() -> None:
    """Data that split_dataset_by_node() has divided are refused."""

    class Split(Forgetful):
        num_shards = 2
        _distributed = "the part of rank 1"

        def shard(self, num_shards: int, index: int) -> Forgetful:
            return Forgetful(3)

    with pytest.raises(errors.NotExactError, match=r"Split gives the part .*leave out split_dataset_by_node\(\)"):
        loop.resumable(DataLoader(Split(6)), distributed=ranked(0, 2))
    assert len([*loop.resumable(DataLoader(Split(6), 2), exact=False, distributed=ranked(0, 2))]) == 3
    assert len(list(loop.resumable(DataLoader(Split(6), 2)))) == 3


def test_workers_may_be_spawned() -> None:
    """The dataset and the initialization can be pickled for spawned workers."""
    source: Any = loop.resumable(DataLoader(dataset(shuffle=True), 4))._source

    pickle.loads(pickle.dumps((source._streaming.dataset, source._streaming.worker_init_fn)))


def rows(names: list[str]) -> Iterator[dict[str, int]]:
    """Yields as many samples as each name says."""
    for name in names:
        for number in range(int(name)):
            yield {"number": 100 * int(name) + number}


def augmented(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "drawn": random.random(), "other": float(torch.rand(()))}


@needs("datasets")
@pytest.mark.parametrize("kind", ["plain", "shuffled", "tensors", "one shard", "split by node"])
def test_a_dataset_of_hugging_face_resumes_exactly(kind: str) -> None:
    """A Hugging Face dataset resumes exactly, with workers and on other numbers of ranks."""
    library: Any = importlib.import_module("datasets")
    names = "9" if kind == "one shard" else ["5", "7", "1", "9", "4"]
    data = library.IterableDataset.from_generator(rows, gen_kwargs={"names": names})
    if kind == "shuffled":
        data = data.shuffle(seed=1, buffer_size=4)
    data = data.map(augmented)
    if kind == "tensors":
        data = data.with_format("torch")
    if kind == "split by node":
        split = importlib.import_module("datasets.distributed").split_dataset_by_node(data, rank=0, world_size=2)
        with pytest.raises(errors.NotExactError, match="leave out split_dataset_by_node"):
            global_batches(split, 2, 1)
        return

    expected, states = global_batches(data, 1, 12)
    assert expected[0] != expected[5 if kind != "one shard" else 2]
    assert global_batches(data, 2, 12, num_workers=2)[0] == expected
    for index in range(0, 10, 2):
        num_ranks = index % 3 + 1
        resumed, _ = global_batches(data, num_ranks, 2, states[index], num_workers=index % 2)
        assert resumed == expected[index : index + 2], index
