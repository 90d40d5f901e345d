"""Each line of the table of loaders in `docs/exact-resume.md` holds, with the numbers of workers and ranks it names.

Faults of other libraries are looked for in all of them: the order of an epoch after a resume at the end of the one
before, a second resume within an epoch, and the last batch of two ranks after a resume at a micro-batch.
"""

from __future__ import annotations

import importlib
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from loop.test_iterables import nodes
from loop.test_resumable import Budget, Pairs, ranked
from loop.toy_datasets import Augmented, Counting, Forgetful
from parts import needs
from stage import read_back
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, WeightedRandomSampler

from core_sdk import errors, loop
from core_sdk.loop._plain import from_plain, to_plain
from core_sdk.pytorch import samplers

PAGE = Path(__file__).parents[2] / "docs" / "exact-resume.md"
SIZE, GLOBAL_BATCH = 13, 4


@dataclass(frozen=True)
class Place:
    """A rank, its number of loader workers, and a directory with the data."""

    directory: Path
    num_workers: int = 0
    rank: int = 0
    num_ranks: int = 1

    def resumable(self, loader: Any) -> loop.ResumableLoader:
        return loop.resumable(loader, seed=3, distributed=ranked(self.rank, self.num_ranks))

    def loader(self, dataset: Any, kind: Any = DataLoader, **options: Any) -> Any:
        if "batch_sampler" not in options:
            options["batch_size"] = GLOBAL_BATCH // self.num_ranks
        return kind(dataset, num_workers=self.num_workers, collate_fn=list, **options)


def stateful(place: Place, dataset: Any, **options: Any) -> Any:
    return place.loader(dataset, importlib.import_module("torchdata.stateful_dataloader").StatefulDataLoader, **options)


def distributed_sampler(place: Place) -> Any:
    return DistributedSampler(Augmented(SIZE), place.num_ranks, place.rank)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]


def tar_files(directory: Path) -> list[Path]:
    """Returns three tar files with samples of one member each."""
    for number, names in enumerate([range(6), range(6, 7), range(7, SIZE)]):
        with tarfile.open(directory / f"{number}.tar", "w") as archive:
            for name in names:
                info = tarfile.TarInfo(f"{name}.txt")
                info.size = 1
                archive.addfile(info, io.BytesIO(b"x"))
    return sorted(directory.glob("*.tar"))


def rows(numbers: Iterable[int]) -> Iterator[dict[str, int]]:
    for number in numbers:
        yield {"number": number}


def hugging_face(kind: str, **arguments: Any) -> Any:
    return getattr(importlib.import_module("datasets"), kind).from_generator(rows, **arguments)


def grain_range() -> Any:
    """Returns a dataset of Grain that is shuffled again in each round."""
    return importlib.import_module("grain").MapDataset.range(SIZE).seed(1).shuffle()


def grain_part(place: Place) -> Any:
    return grain_range()[place.rank :: place.num_ranks].batch(GLOBAL_BATCH // place.num_ranks)


def grain_loader(place: Place) -> Any:
    grain = importlib.import_module("grain")
    part = grain.sharding.ShardOptions(place.rank, place.num_ranks)
    sampler = grain.samplers.IndexSampler(SIZE, part, shuffle=True, num_epochs=1, seed=1)
    batches = grain.transforms.Batch(GLOBAL_BATCH // place.num_ranks)
    return grain.DataLoader(
        data_source=range(SIZE), sampler=sampler, operations=[batches], worker_count=place.num_workers
    )


def grain_elastic(place: Place) -> Any:
    part = importlib.import_module("grain").sharding.ShardOptions(place.rank, place.num_ranks)
    return importlib.import_module("grain").experimental.ElasticIterator(grain_range(), GLOBAL_BATCH, part)


LOADERS: dict[str, dict[str, Callable[[Place], Any]]] = {
    "`shuffle=True`, or samplers of torch, such as `WeightedRandomSampler`": {
        "shuffled": lambda place: place.loader(Augmented(SIZE), shuffle=True),
        "weighted": lambda place: place.loader(Augmented(40), sampler=WeightedRandomSampler([1.0] * 40, SIZE)),
    },
    "torch's `DistributedSampler`": {
        "distributed": lambda place: place.loader(Augmented(SIZE), sampler=distributed_sampler(place))
    },
    "a sampler or batch sampler of your own": {
        "sampler": lambda place: place.loader(Augmented(SIZE), sampler=[*range(SIZE)]),
        "batches": lambda place: place.loader(Augmented(22), batch_sampler=Pairs()),
        "budget": lambda place: place.loader(Augmented(22), batch_sampler=Budget()),
    },
    "a sampler of `core_sdk.pytorch.samplers` that repeats": {
        "repeated": lambda place: place.loader(
            Augmented(SIZE), sampler=samplers.RepeatSampler(RandomSampler(range(SIZE)))
        )
    },
    "Hugging Face's `Dataset`, or a `MapDataset` of Grain in a `DataLoader`": {
        "datasets map": lambda place: place.loader(
            importlib.import_module("datasets").Dataset.from_dict({"number": [*range(SIZE)]}), shuffle=True
        ),
        "grain in torch": lambda place: place.loader(grain_range(), shuffle=True),
    },
    "torchdata's `StatefulDataLoader` of a dataset with indices": {
        "stateful": lambda place: stateful(place, Augmented(SIZE), shuffle=True)
    },
    "[a dataset in shards](#data-in-shards), such as files that are read in sequence": {
        "shards": lambda place: place.loader(
            loop.ShardedDataset([range(9), range(9, SIZE)], iter, shuffle=True, shuffle_block_size=5)
        )
    },
    "WebDataset's tar files, as [a dataset in shards](#data-in-shards)": {
        "tar": lambda place: place.loader(loop.ShardedDataset(tar_files(place.directory), members, shuffle=True))
    },
    "Hugging Face's `IterableDataset`, and others with `num_shards` and `shard()`": {
        "datasets streaming": lambda place: place.loader(
            hugging_face("IterableDataset", gen_kwargs={"numbers": [*range(SIZE)]}).shuffle(seed=1, buffer_size=4)
        )
    },
    "any other iterable dataset with `state_dict()` and `load_state_dict()`": {
        "dataset with state": lambda place: place.loader(Counting(SIZE))
    },
    "torchdata's `StatefulDataLoader` with any other iterable dataset": {
        "stateful with workers": lambda place: stateful(replace(place, num_workers=2), Counting(SIZE, shuffles=False))
    },
    "`torchdata.nodes.Loader`": {"nodes": lambda place: nodes(distributed_sampler(place))},
    "Grain's `DataLoader`, `IterDataset` or `MapDataset`": {
        "grain loader": grain_loader,
        "grain iterable": lambda place: grain_part(place).to_iter_dataset(),
        "grain map": grain_part,
    },
    "Grain's `ElasticIterator`": {"grain elastic": grain_elastic},
    "anything else": {"forgetful": lambda place: place.loader(Forgetful(SIZE))},
}


def table() -> dict[str, tuple[str, str]]:
    """Returns the workers and ranks that the page names for each loader."""
    lines = (
        PAGE.read_text().partition("## Which loaders resume exactly")[2].partition("\n\n`resumable(")[0].splitlines()
    )
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return {name: (workers, num_ranks) for name, workers, num_ranks, _ in cells[2:]}


CASES = [
    pytest.param(row, kind, id=kind, marks=[needs(part) for part in ("datasets", "grain") if part in kind])
    for row, kinds in LOADERS.items()
    for kind in kinds
    if row != "anything else"
]


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a state as a checkpoint gives it back."""
    return from_plain(read_back(to_plain(state, "the state")))  # type: ignore[no-any-return]


def plain(batch: Any) -> list[Any]:
    """Returns the samples of a batch."""
    samples = batch.tolist() if hasattr(batch, "tolist") else batch
    return [tuple(each.values()) if isinstance(each, dict) else each for each in samples]


def train(loader: loop.ResumableLoader, until: int | None = None, *, num_epochs: int = 3) -> list[Any]:
    """Runs the usual loop up to the batch of this number, and returns the epoch and the samples of each batch."""
    seen = []
    for epoch in range(loader.epoch, num_epochs):
        for batch in loader:
            seen.append((epoch, plain(batch)))
            if loader.batches == until:
                return seen
    return seen


def test_each_line_of_the_table_is_tested() -> None:
    """The table on the page names the same loaders as these tests."""
    assert table().keys() == LOADERS.keys()


@pytest.mark.parametrize(("row", "kind"), CASES)
def test_a_second_resume_in_an_epoch_and_one_at_its_end_give_the_same_batches(
    row: str, kind: str, tmp_path: Path
) -> None:
    """Several resumes within an epoch, behind its last batch and before the next one, change no batch of any epoch."""
    place, make = Place(tmp_path), LOADERS[row][kind]
    expected = train(place.resumable(make(place)))
    length = sum(epoch == 0 for epoch, _ in expected)
    assert length >= 3

    seen, state = [], place.resumable(make(place)).state_dict()
    for until, num_epochs in [(1, 3), (2, 3), (length, 3), (None, 1), (length + 1, 3), (None, 3)]:
        has_workers = table()[row][0] == "any number" and until in (None, length + 1)
        there = replace(place, num_workers=2 if has_workers and num_epochs == 3 else 0)
        loader = there.resumable(make(there))
        loader.load_state_dict(stored(state))
        seen += train(loader, until, num_epochs=num_epochs)
        state = loader.state_dict()

    assert seen == expected


@pytest.mark.parametrize(("row", "kind"), CASES)
def test_the_last_batch_of_two_ranks_is_the_same_after_a_resume_at_a_micro_batch(
    row: str, kind: str, tmp_path: Path
) -> None:
    """A resume after one micro-batch gives each of two ranks the same batches, also the last one, if it is padded."""
    make = LOADERS[row][kind]
    for rank in range(2):
        place = Place(tmp_path, rank=rank, num_ranks=2)
        loader = place.resumable(make(place))
        first = train(loader, 1)
        state = stored(loader.state_dict())
        rest = train(loader)

        resumed = place.resumable(make(place))
        resumed.load_state_dict(state)
        assert train(resumed) == rest
        assert len([*first, *rest]) == loader.batches == resumed.batches


@pytest.mark.parametrize(("row", "kind"), CASES)
def test_a_resume_on_other_ranks_is_as_the_table_says(row: str, kind: str, tmp_path: Path) -> None:
    """A resume on two ranks instead of one gives the same global batches, or is refused."""
    make = LOADERS[row][kind]
    loader = Place(tmp_path).resumable(make(Place(tmp_path)))
    train(loader, 1)
    state = stored(loader.state_dict())
    places = [Place(tmp_path, rank=rank, num_ranks=2) for rank in range(2)]
    resumed = [place.resumable(make(place)) for place in places]

    if table()[row][1] == "the same":
        with pytest.raises(errors.NotExactError, match=r"divided among 1 ranks.*there are 2 now.*resume on 1 ranks"):
            resumed[0].load_state_dict(state)
        return

    parts = []
    for rank in resumed:
        rank.load_state_dict(state)
        parts.append([[] if draw.is_filler else plain(batch) for draw, batch in islice(rank.stream(), 4)])
    both = [sorted(one + other) for one, other in zip(*parts, strict=True)]
    if kind in ("batches", "budget"):  # two of its batches at a time
        alone = [plain(batch) for _, batch in islice(loader.stream(), 2)]
        assert both[0] == sorted(alone[0] + alone[1])
    else:
        assert both == [sorted(plain(batch)) for _, batch in islice(loader.stream(), 4)]


def test_what_the_table_refuses_is_refused(tmp_path: Path) -> None:
    """Other loaders, and workers where there may be none, are refused; another number of workers is named."""
    place = Place(tmp_path)
    for row, (workers, _) in table().items():
        if workers in ("none", "refused"):
            (make,) = LOADERS[row].values()
            with pytest.raises(errors.NotExactError, match="so a resume cannot be exact"):
                place.resumable(make(replace(place, num_workers=1)))

    (make,) = LOADERS["torchdata's `StatefulDataLoader` with any other iterable dataset"].values()
    state = {**place.resumable(make(place)).state_dict(), "num_workers": 3}
    with pytest.raises(errors.NotExactError, match=r"among 3 loader workers.*there are 2 now.*num_workers=3$"):
        place.resumable(make(place)).load_state_dict(state)


@needs("grain")
def test_an_iterator_of_grain_is_refused_with_what_to_register() -> None:
    """State says what to register in the place of Grain's iterator, which has other names for its state."""
    with pytest.raises(TypeError, match=r"Iterator, without .*register loop\.resumable\(\) of the dataset or loader"):
        loop.State(data=iter(grain_range()))


@needs("grain")
def test_another_number_of_grains_workers_is_named(tmp_path: Path) -> None:
    """A state that Grain refuses, as for another number of workers, gets a note that says what must be alike."""
    place = Place(tmp_path)
    resumed = place.resumable(grain_loader(replace(place, num_workers=1)))
    before = place.resumable(grain_loader(place))
    train(before, 1)
    resumed.load_state_dict(before.state_dict())

    with pytest.raises(ValueError, match="Worker count in checkpoint") as raised:
        train(resumed)
    assert "number of workers of the checkpoint" in raised.value.__notes__[0]
