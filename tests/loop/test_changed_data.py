"""A resume says whether its data are those of the checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from loop.toy_datasets import Augmented, Counting
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, StackDataset, Subset, TensorDataset

from core_sdk import core, errors, loop

NUM_SAMPLES = 12
Change = Literal["nothing", "length", "content", "type", "identity"]
ChangedData = Literal["strict", "warn", "any"]


class Data(NamedTuple):
    """Data as they are given before and after a stop."""

    make: Callable[[Change, Path], Any]
    changes: frozenset[Change]
    """The changes that are noticed, besides none."""


def size(change: Change) -> int:
    return NUM_SAMPLES + 2 if change == "length" else NUM_SAMPLES


def numbers(change: Change) -> torch.Tensor:
    values = torch.arange(float(size(change)))
    if change == "content":
        values[-1] = -1
    return values.double() if change == "type" else values


class Numbers(Dataset[int]):
    """A dataset of the user's. None of its samples may be asked for before the loop asks."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.is_asked_for = False

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        self.is_asked_for = True
        return index


class OtherNumbers(Numbers):
    pass


class Lines:
    """Reads the lines of a file."""

    def __call__(self, path: Path) -> Iterator[str]:
        yield from path.read_text().split()


def shards(change: Change, directory: Path) -> Any:
    directory = directory / change
    directory.mkdir(exist_ok=True)
    for name in ("a", "b", *(["c"] if change == "length" else [])):
        filler = "xyz" if change == "content" else ""
        (directory / name).write_text(" ".join(f"{name}{line}{filler}" for line in range(6)))
    return loop.ShardedDataset(sorted(directory.iterdir()), Lines())


def hugging_face(change: Change, directory: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    values = [*range(size(change))]
    found = datasets.Dataset.from_dict({"x": values[::-1] if change == "content" else values})
    return found.rename_column("x", "y") if change == "identity" else found


def own(change: Change, directory: Path) -> Any:
    return (OtherNumbers if change == "type" else Numbers)(size(change))


def part(change: Change, directory: Path) -> Any:
    indices = [*range(NUM_SAMPLES)]
    if change == "content":
        indices.reverse()
    return Subset(own("type" if change == "type" else "nothing", directory), indices[: 8 if change == "length" else 10])


IN_MEMORY: frozenset[Change] = frozenset({"length", "content", "type"})
DATA = {
    "tensors": Data(lambda change, _: TensorDataset(numbers(change), torch.ones(size(change), 2, 3)), IN_MEMORY),
    "tensor": Data(lambda change, _: numbers(change), IN_MEMORY),
    "list": Data(lambda change, _: [{"x": each, "y": ["text", 1.5]} for each in numbers(change)], IN_MEMORY),
    "array": Data(lambda change, _: numbers(change).numpy(), IN_MEMORY),
    "joined": Data(
        lambda change, path: ConcatDataset([own("nothing", path), TensorDataset(numbers(change))]), IN_MEMORY
    ),
    "stacked": Data(lambda change, _: StackDataset(x=TensorDataset(numbers(change))), IN_MEMORY),
    "part": Data(part, IN_MEMORY),
    "own": Data(own, frozenset({"length", "type"})),
    "Hugging Face": Data(hugging_face, frozenset({"length", "content", "identity"})),
    "shards": Data(shards, frozenset({"length", "content"})),
}
CASES = [(name, change) for name, data in DATA.items() for change in sorted({"nothing", *data.changes})]


def as_it_is(samples: Any) -> Any:
    return samples


def resumable(
    dataset: Any, data: ChangedData = "warn", distributed: core.DistributedContext | None = None, **options: Any
) -> loop.ResumableLoader:
    loader: DataLoader[Any] = DataLoader(dataset, 2, collate_fn=as_it_is, **options)
    return loop.resumable(loader, seed=1, data=data, distributed=distributed)


def after_a_batch(dataset: Any, **options: Any) -> dict[str, Any]:
    loader = resumable(dataset, **options)
    next(loader.stream())
    return loader.state_dict()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("data", ["strict", "warn", "any"])
@pytest.mark.parametrize(("name", "change"), CASES)
def test_a_resume_notices_other_data(
    name: str, change: Change, data: ChangedData, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The data of before are resumed in silence; others are named in one line, or refused."""
    make = DATA[name].make
    state = after_a_batch(make("nothing", tmp_path))
    loader = resumable(make(change, tmp_path), data)

    if change != "nothing" and (data == "strict" or (data == "warn" and change == "length")):
        with pytest.raises(errors.DataError, match=r" was .* and is "):
            loader.load_state_dict(state)
        assert not warnings(caplog)
        return
    loader.load_state_dict(state)
    loader.load_state_dict(state)

    said = warnings(caplog)
    assert len(said) == (change != "nothing"), said
    assert all(each.startswith("the data are not those of the checkpoint: the ") for each in said)
    assert (loader.epoch, loader.batches) == (0, 1)
    assert sum(len(batch) for batch in loader) == sum(len(batch) for batch in resumable(make(change, tmp_path))) - 2


def test_no_sample_is_fetched_for_the_identity() -> None:
    """A dataset of the user's is not asked for a sample, and no random number is drawn."""
    dataset, before = Numbers(NUM_SAMPLES), torch.get_rng_state()
    resumable(Subset(dataset, [1, 2])).state_dict()

    assert not dataset.is_asked_for
    assert torch.equal(torch.get_rng_state(), before)


def test_a_checkpoint_without_a_identity_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """A state of an earlier version says nothing of the data, and is loaded even if it is strict."""
    state = after_a_batch(TensorDataset(numbers("nothing")))
    del state["data_identity"]
    loader = resumable(TensorDataset(numbers("content")), "strict")
    loader.load_state_dict(state)

    assert loader.batches == 1
    assert not warnings(caplog)


def test_the_identity_does_not_depend_on_the_ranks(caplog: pytest.LogCaptureFixture) -> None:
    """Another number of ranks has the same data. If the data are others, only one rank says so."""
    state = after_a_batch(numbers("nothing"))
    ranks = [core.DistributedContext() for _ in range(2)]
    for rank, distributed in enumerate(ranks):
        distributed.rank, distributed.size = rank, 2
        resumable(numbers("nothing"), "strict", distributed).load_state_dict(state)
    assert not warnings(caplog)

    for distributed in ranks:
        resumable(numbers("content"), "warn", distributed).load_state_dict(state)
    assert len(warnings(caplog)) == 1


class Growing(Numbers):
    """A dataset that is longer in later epochs."""

    def grow(self) -> None:
        self.length += 4


def test_a_dataset_that_grows_while_it_is_trained_on_is_the_same() -> None:
    """The identity is that of the data as the script has given them."""
    dataset = Growing(NUM_SAMPLES)
    loader = resumable(dataset, sampler=range(NUM_SAMPLES))
    dataset.grow()
    loader.begin_epoch(1)

    resumed = resumable(Growing(NUM_SAMPLES), "strict", sampler=range(NUM_SAMPLES))
    resumed.load_state_dict(loader.state_dict())
    assert resumed.epoch == 1


class Sized(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(NUM_SAMPLES))

    def __len__(self) -> int:
        raise AssertionError("it may have to be read for that")


@pytest.mark.parametrize("make", [lambda: DataLoader(Sized(), 2), lambda: [[1, 2]] * 9, lambda: iter([[1, 2]] * 9)])
def test_data_without_a_length_have_a_identity(make: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    """Iterable datasets, iterables and generators are told apart by their types."""
    loader = loop.resumable(make(), exact=False)
    next(loader.stream())
    state = loader.state_dict()
    loop.resumable(make(), exact=False, data="strict").load_state_dict(state)
    assert not warnings(caplog)

    with pytest.raises(errors.DataError, match="the type was"):
        loop.resumable(DataLoader(Counting(9), 2), data="strict").load_state_dict(
            {**state, "data": None, "num_workers": 0}
        )


def test_shorter_data_go_on_with_the_next_epoch() -> None:
    """With data="any" a position beyond the end is the end of the epoch."""
    loader = resumable(Augmented(NUM_SAMPLES))
    for _ in range(5):
        next(loader.stream())
    shorter = resumable(Augmented(6), "any")
    shorter.load_state_dict(loader.state_dict())

    assert shorter.is_epoch_over
    assert [*shorter] == []
    assert (shorter.epoch, len([*shorter])) == (1, 3)


def test_fewer_shards_go_on_with_the_next_epoch(tmp_path: Path) -> None:
    """If the lengths of the shards are not known yet, the iteration gives the next epoch at once."""
    loader = resumable(shards("length", tmp_path))
    for _ in range(8):
        next(loader.stream())
    fewer = resumable(shards("nothing", tmp_path), "any")
    fewer.load_state_dict(loader.state_dict())

    assert len([*fewer]) == 6
    assert fewer.epoch == 2


def test_an_unknown_choice_is_refused() -> None:
    """`data=` has three values."""
    with pytest.raises(ValueError, match="data='all': give one of strict, warn, any"):
        resumable(numbers("nothing"), "all")  # type: ignore[arg-type]


def test_values_of_every_kind_have_a_checksum() -> None:
    """Each type of tensor, array and value that data in memory may have takes part in the identity."""
    values: list[Any] = [
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, 3, dtype=torch.bool).T,
        torch.ones((), dtype=torch.complex64).conj(),
        torch.ones(2, 2).to_sparse(),
        torch.ones(3, device="meta"),
        torch.ones(2, requires_grad=True),
        torch.empty(0, 3),
        np.ones(3, dtype="datetime64[s]"),
        np.array([None, "x"]),
        np.array(1.0),
        (1, 2.5, 1j, None, True, "text", b"bytes", Path("a/b"), range(3), {"x": object()}),
    ]
    before = resumable(values).state_dict()["data_identity"]

    assert resumable([*values]).state_dict()["data_identity"] == before
    assert resumable([*values[:-1], (1, 2.5)]).state_dict()["data_identity"] != before
