"""Iterable datasets and loaders of other libraries resume by their own state, or not exactly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from loop.toy_datasets import Counting, Drifting, Forgetful
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, Sampler

from core_sdk import errors, loop
from core_sdk.loop import _rng as rng


def nodes(sampler: Any, *, is_drawn_from: bool = False) -> Any:
    """Returns a loader of torchdata's nodes. It has no threads if it is drawn from, since their draws are not kept."""
    library: Any = pytest.importorskip("torchdata.nodes")
    if is_drawn_from:
        mapped = library.Mapper(library.SamplerWrapper(sampler), lambda index: index + random.random())
        return library.Loader(library.Mapper(library.Batcher(mapped, 4, drop_last=False), torch.tensor))
    mapped = library.MapStyleWrapper(range(100, 114), sampler)
    return library.Loader(
        library.Mapper(library.Prefetcher(library.Batcher(mapped, 4, drop_last=False), 2), torch.tensor)
    )


def several_nodes(stop_criterion: str, *, is_stateful: bool) -> Any:
    """Returns a loader of torchdata nodes that read from two sources."""
    library: Any = pytest.importorskip("torchdata.nodes")
    samplers: Any = pytest.importorskip("torchdata.stateful_dataloader.sampler")
    kind: Any = samplers.StatefulDistributedSampler if is_stateful else DistributedSampler
    sources = {
        name: library.MapStyleWrapper(range(start, start + size), kind(range(size), 1, 0))
        for name, start, size in (("large", 100, 9), ("small", 200, 5))
    }
    weighted = library.MultiNodeWeightedSampler(sources, {"large": 0.7, "small": 0.3}, stop_criterion, 0, 1)
    return library.Loader(library.Mapper(library.Batcher(weighted, 4, drop_last=False), torch.tensor))


def stateful_sampler(size: int) -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader.sampler").StatefulDistributedSampler(range(size), 1, 0)


def stateful(num_workers: int, dataset: IterableDataset[Any] | None = None) -> Any:
    library = pytest.importorskip("torchdata.stateful_dataloader")
    return library.StatefulDataLoader(dataset or Counting(14, num_workers == 0), 4, num_workers=num_workers)


LOADERS: dict[str, Callable[[], Any]] = {
    "dataset with state": lambda: DataLoader(Counting(14), 4),
    "loader with state": lambda: stateful(0),
    "loader with state and workers": lambda: stateful(2),
    "nodes": lambda: nodes(DistributedSampler(range(14), 1, 0)),  # type: ignore[arg-type]
    "loader with state and a worker of a dataset that begins again": lambda: stateful(1, Drifting(13)),
    "nodes with a stateful sampler": lambda: nodes(stateful_sampler(14)),
    **{
        f"several nodes until {criterion}, with {'stateful' if is_stateful else 'plain'} samplers": partial(
            several_nodes, criterion, is_stateful=is_stateful
        )
        for criterion in ("CYCLE_UNTIL_ALL_DATASETS_EXHAUSTED", "ALL_DATASETS_EXHAUSTED", "FIRST_DATASET_EXHAUSTED")
        for is_stateful in (True, False)
    },
    "nodes that draw": lambda: nodes(DistributedSampler(range(14), 1, 0), is_drawn_from=True),  # type: ignore[arg-type]
}


def take(loader: loop.ResumableLoader, count: int) -> list[list[int]]:
    return [batch.tolist() for _, batch in islice(loader.stream(), count)]


@pytest.mark.parametrize("kind", LOADERS)
def test_a_resume_at_any_batch_gives_the_same_samples(kind: str) -> None:
    """A resume at any batch, also at the end of an epoch, gives the same samples."""
    loader = loop.resumable(LOADERS[kind]())
    states, batches, ends = [loader.state_dict()], [], []
    count = 20 if "worker" in kind else 15 if "nodes" in kind else 10
    for draw, batch in islice(loader.stream(), count):
        states.append(loader.state_dict())
        batches.append(batch.tolist())
        ends.append(draw.is_epoch_end)

    assert ends.count(True) >= 2
    for index in range(0, count, count // 5 if "worker" in kind else 1):
        loader = loop.resumable(LOADERS[kind]())
        loader.load_state_dict(states[index])
        assert take(loader, count - index) == batches[index:]


def test_an_epoch_ends_with_the_loop_over_it() -> None:
    """A loop over the loader is one epoch, also after a resume at its end."""
    loader = loop.resumable(DataLoader(Counting(6), 4))
    first = [batch.tolist() for batch in loader]
    between = loader.state_dict()
    second = []
    for batch in loader:
        second.append(batch.tolist())
        behind_last = loader.state_dict()

    resumed = loop.resumable(DataLoader(Counting(6), 4))
    resumed.load_state_dict(between)
    assert [batch.tolist() for batch in resumed] == second
    resumed.load_state_dict(behind_last)
    assert [batch.tolist() for batch in resumed] == []
    assert resumed.epoch == 2
    assert sorted(index for batch in first for index in batch) == list(range(6))
    assert len([*resumed]) == 2


def test_a_pass_begins_at_the_beginning() -> None:
    """single_pass() always begins at the first sample."""
    loader = loop.resumable(DataLoader(Counting(9), 4))

    list(islice(loader.single_pass(), 1))
    passes = [[batch.tolist() for _, batch in loader.single_pass()] for _ in range(2)]

    assert passes[0] == passes[1]
    assert sorted(index for batch in passes[0] for index in batch) == list(range(9))


def test_nodes_that_draw_another_order_each_time_are_refused() -> None:
    """Nodes with a random sampler without a state are refused as not exact."""
    with pytest.raises(errors.NotExactError, match=r"RandomSampler of a SamplerWrapper .*give it set_epoch"):
        loop.resumable(nodes(RandomSampler(range(14))))
    assert len([*loop.resumable(nodes(RandomSampler(range(14))), exact=False)]) == 4


def test_nodes_whose_sampler_forgets_its_order_are_refused() -> None:
    """Nodes whose sampler does not keep its order in its state are refused."""

    class Forgetting(StatefulSampler):
        def state_dict(self) -> dict[str, Any]:
            return {"position": self.position}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.position = state["position"]

    with pytest.raises(
        errors.NotExactError, match=r"Forgetting of a SamplerWrapper gives other samples after its stat"
    ):
        loop.resumable(nodes(Forgetting()))
    assert len([*loop.resumable(nodes(Forgetting()), exact=False)]) == 4
    loader = loop.resumable(nodes(StatefulSampler()))
    batches = take(loader, 6)
    state, expected = loader.state_dict(), take(loader, 6)
    resumed = loop.resumable(nodes(StatefulSampler()))
    resumed.load_state_dict(state)
    assert take(resumed, 6) == expected != batches


class StatefulSampler(Sampler[int]):
    """A sampler that shuffles by its own generator, which is part of its state."""

    def __init__(self) -> None:
        self._generator = random.Random(1)
        self._began = self._generator.getstate()
        self.position = 0

    def __iter__(self) -> Iterator[int]:
        self._began = self._generator.getstate()
        order = self._generator.sample(range(14), 14)
        while self.position < 14:
            self.position += 1
            yield order[self.position - 1]
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "began": self._began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
        self._generator.setstate(state["began"])


@pytest.mark.parametrize("kind", ["dataset with state", "loader with state"])
def test_the_generators_of_the_training_are_not_disturbed(kind: str) -> None:
    """Neither training batches nor a pass over the data change the training's random generators."""
    rng.seed_all(3)
    expected = random.random(), float(torch.rand(()))
    rng.seed_all(3)

    list(loop.resumable(LOADERS[kind]()).single_pass())
    take(loop.resumable(LOADERS[kind]()), 6)

    assert (random.random(), float(torch.rand(()))) == expected


def test_an_iterable_without_state_is_refused() -> None:
    """An iterable without a state, or one whose state is in workers, is refused with alternatives."""
    with pytest.raises(
        errors.NotExactError,
        match=r"loop\.ShardedDataset, or give it state_dict.*torchdata's StatefulDataLoader, or pass exact=Fals",
    ):
        loop.resumable(DataLoader(Forgetful(9)))
    with pytest.raises(errors.NotExactError, match="num_workers=0"):
        loop.resumable(DataLoader(Counting(9), num_workers=1))


def test_without_state_a_position_is_found_by_reading() -> None:
    """With exact=False the position in an iterable without state is found by reading up to it."""
    loader = loop.resumable(DataLoader(Forgetful(9), 2), exact=False)
    take(loader, 7)
    state = loader.state_dict()
    expected = take(loader, 5)

    resumed = loop.resumable(DataLoader(Forgetful(9), 2), exact=False)
    resumed.load_state_dict(state)

    assert take(resumed, 5) == expected == [[4, 5], [6, 7], [8], [0, 1], [2, 3]]


def test_an_iterable_that_has_become_shorter_is_refused() -> None:
    """An iterable that has become shorter than the position is refused."""
    loader = loop.resumable(DataLoader(Forgetful(9), 2), exact=False)
    take(loader, 4)
    shorter = loop.resumable(DataLoader(Forgetful(3), 2), exact=False)
    shorter.load_state_dict(loader.state_dict())

    with pytest.raises(errors.DataError, match="number of batches in an epoch was 4 or more and is 2"):
        take(shorter, 1)


def test_states_of_several_ranks_fit_as_many_ranks() -> None:
    """The state of an iterable on several ranks can be loaded only on as many ranks."""
    state = {**loop.resumable(DataLoader(Counting(9), 2)).state_dict(), "num_ranks": 2}

    with pytest.raises(errors.NotExactError, match=r"divided among 2 ranks.*there are 1 now.*resume on 2 ranks$"):
        loop.resumable(DataLoader(Counting(9), 2)).load_state_dict(state)


def test_an_iterable_that_gives_nothing_is_no_endless_loop() -> None:
    """An iterable that can be read only once raises an error in the second epoch."""

    class Once(IterableDataset[int]):
        def __init__(self) -> None:
            self._numbers = iter(range(4))

        def __iter__(self) -> Iterator[int]:
            return self._numbers

    loader = loop.resumable(DataLoader(Once(), 2), exact=False)

    with pytest.raises(errors.DataError, match="gave no batch in epoch 1"):
        take(loader, 3)


def test_the_last_batch_of_an_iterable_is_as_it_is() -> None:
    """last_batch cannot be changed for an iterable dataset."""
    with pytest.raises(ValueError, match=r"last_batch='carry' needs a dataset in shards, or one with"):
        loop.resumable(DataLoader(Counting(9), 2), last_batch="carry")


def test_any_iterable_is_read_if_it_need_not_be_exact() -> None:
    """With exact=False any iterable is accepted."""
    loader = loop.resumable([1, 2, 3], exact=False)

    assert [batch for _, batch in islice(loader.stream(), 5)] == [1, 2, 3, 1, 2]
