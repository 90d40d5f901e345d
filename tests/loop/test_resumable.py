"""A resumable loader goes on after a stop with the very next sample."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kernels import run
from loop.toy_datasets import (
    Augmented,
    AugmentedAtOnce,
    Counting,
    Described,
    Failing,
    FailingAtRandom,
    LateAugmented,
    Lethal,
    RarelyAugmented,
)
from parts import needs
from processes import Script
from promises import promise
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from core_sdk import core, errors, loop
from core_sdk.loop import _rng as rng
from core_sdk.loop._plan import LastBatch

Batches = list[list[Any]]


def ranked(rank: int, size: int) -> core.DistributedContext:
    """Returns a context that only knows its rank and size."""
    distributed = core.DistributedContext()
    distributed.rank, distributed.size = rank, size
    return distributed


def plain(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(part) for part in batch] if isinstance(batch, list | tuple) else batch


def take(loader: loop.ResumableLoader, count: int) -> list[Any]:
    return [plain(batch) for _, batch in islice(loader.stream(), count)]


def indices_of(loader: loop.ResumableLoader, count: int) -> Batches:
    return [draw.indices for draw, _ in islice(loader.stream(), count) if not draw.is_filler]


def augmented(batch_size: int = 4, num_workers: int = 0, **options: Any) -> DataLoader[Any]:
    return DataLoader(Augmented(22), batch_size, shuffle=True, num_workers=num_workers, **options)


class ByEpoch(Sampler[int]):
    """A sampler that depends on the epoch."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._epoch = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        return iter([(index * 3 + self._epoch) % self._size for index in range(self._size)])

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch


class Stateful(Sampler[int]):
    """A sampler with a state that ignores the epoch."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._turn = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        self._turn += 1
        return iter([(index + self._turn**2) % self._size for index in range(self._size)])

    def state_dict(self) -> dict[str, int]:
        return {"turn": self._turn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._turn = state["turn"]


class Drawing(Sampler[int]):
    """A sampler that draws from torch's global generator."""

    def __len__(self) -> int:
        return 22

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(22).tolist())


class Pairs(Sampler[list[int]]):
    """A batch sampler with batches of different sizes."""

    def __len__(self) -> int:
        return 7

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(22).tolist()
        return iter(
            [order[start : start + size] for start, size in zip(range(0, 21, 3), [1, 2, 3, 3, 2, 1, 3], strict=True)]
        )


class TensorBatches(Sampler[Any]):
    """A batch sampler that gives tensors."""

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(22).split(4))  # type: ignore[no-untyped-call]


class Budget(Sampler[list[int]]):
    """A user's batch sampler that fills each batch up to a sum of lengths: each epoch has another number of batches."""

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in torch.randperm(22).tolist():
            if sum(batch) + index > 30:
                yield batch
                batch = []
            batch.append(index)
        yield batch


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "sequential": lambda: DataLoader(Augmented(22), 4),
    "shuffled": augmented,
    "drop_last": lambda: augmented(drop_last=True),
    "replacement": lambda: DataLoader(Augmented(22), 4, sampler=RandomSampler(range(22), True, 9)),
    "weighted": lambda: DataLoader(Augmented(22), 4, sampler=WeightedRandomSampler([1.0] * 21 + [9.0], 30)),
    "subset": lambda: DataLoader(Augmented(22), 4, sampler=SubsetRandomSampler(range(3, 20))),
    "distributed": lambda: DataLoader(Augmented(22), 4, sampler=DistributedSampler(Augmented(22), 2, 0)),
    "user's, by epoch": lambda: DataLoader(Augmented(22), 4, sampler=ByEpoch(22)),
    "user's, with state": lambda: DataLoader(Augmented(22), 4, sampler=Stateful(22)),
    "user's, by generator": lambda: DataLoader(Augmented(22), 4, sampler=Drawing()),
    "a list": lambda: DataLoader(Augmented(22), 4, sampler=[5, 3, 3, 8, 9]),
    "batch sampler": lambda: DataLoader(Augmented(22), batch_sampler=Pairs()),
    "batch sampler with other numbers": lambda: DataLoader(Augmented(22), batch_sampler=Budget()),
    "batch sampler with a generator": lambda: DataLoader(
        Augmented(22), batch_sampler=BatchSampler(RandomSampler(range(22), generator=torch.Generator()), 4, False)
    ),
    "no batches": lambda: DataLoader(Augmented(22), batch_size=None, shuffle=True),
    "fetched at once": lambda: DataLoader(AugmentedAtOnce(22), 4, shuffle=True),
    "rarely augmented": lambda: DataLoader(RarelyAugmented(22), 4, shuffle=True),
    "side by side": lambda: DataLoader(StackDataset(Augmented(22), TensorDataset(torch.arange(22))), 4, shuffle=True),
    "tensors as batches": lambda: DataLoader(Augmented(22), batch_sampler=TensorBatches()),
    "parts": lambda: DataLoader(ConcatDataset([Augmented(9), Subset(AugmentedAtOnce(22), range(8))]), 4, shuffle=True),
}  # fmt: skip


@promise("resume-exact")
@pytest.mark.parametrize("kind", LOADERS)
def test_a_resume_at_any_batch_gives_the_same_samples(kind: str) -> None:
    """A resume at any batch gives the same samples and random numbers, with a new or used loader."""
    loader = loop.resumable(LOADERS[kind](), seed=5)
    states, batches = [loader.state_dict()], []
    for _, batch in islice(loader.stream(), 14):
        states.append(loader.state_dict())
        batches.append(plain(batch))

    for index in range(13):
        other = loop.resumable(LOADERS[kind](), seed=5) if index % 2 else loader
        other.load_state_dict(states[index])
        assert take(other, 14 - index) == batches[index:], index


def global_batches(
    num_ranks: int, count: int, last_batch: LastBatch, state: dict[str, Any] | None = None
) -> tuple[Batches, list[dict[str, Any]]]:
    """Returns the batches of all ranks together, of 12 samples, and the state after each."""
    parts = []
    for rank in range(num_ranks):
        loader = loop.resumable(augmented(12 // num_ranks), last_batch=last_batch, distributed=ranked(rank, num_ranks))
        if state:
            loader.load_state_dict(state)
        part, states = [], []
        for draw, batch in islice(loader.stream(), count):
            part.append([] if draw.is_filler else list(zip(*plain(batch), strict=True)))
            states.append(loader.state_dict())
        parts.append(part)
    return [[sample for part in batch for sample in part] for batch in zip(*parts, strict=True)], states


@promise("resume-on-other-ranks")
@pytest.mark.parametrize("last_batch", ["drop", "keep", "carry"])
def test_a_resume_on_another_number_of_ranks_gives_the_same_global_batches(last_batch: LastBatch) -> None:
    """A resume on another number of ranks gives the same global batches, also if done twice."""
    expected, states = global_batches(4, 7, last_batch)

    for index, state in enumerate(states, 1):
        first, states_of_three = global_batches(3, 2, last_batch, state)
        second, _ = global_batches(1, 2, last_batch, states_of_three[-1])
        assert [*first, *second][: 7 - index] == expected[index : index + 4], index


@pytest.mark.parametrize("kind", ["shuffled", "rarely augmented", "batch sampler", "fetched at once", "no batches"])
def test_workers_change_nothing(kind: str) -> None:
    """Workers change neither the samples nor their random numbers."""
    expected = take(loop.resumable(LOADERS[kind]()), 9)
    for num_workers in (2, 3) if kind == "shuffled" else (2,):
        options = LOADERS[kind]()
        options.num_workers, options.prefetch_factor = num_workers, 2

        assert take(loop.resumable(options), 9) == expected


@pytest.mark.parametrize(
    ("data", "is_alike"),
    [
        (Augmented(12), True),
        (Subset(Augmented(12), range(12)), True),
        (StackDataset(Augmented(12), TensorDataset(torch.arange(12))), True),
        (AugmentedAtOnce(12), False),
    ],
)
def test_only_a_dataset_that_gives_several_samples_at_once_draws_by_the_batch(data: Any, is_alike: bool) -> None:
    """Random numbers depend on the batch size only if the dataset fetches several samples at once."""
    large, small = (loop.resumable(DataLoader(data, size, collate_fn=list)) for size in (4, 2))

    samples_of_large, samples_of_small = (
        [sample for batch in take(each, n) for sample in batch] for each, n in ((large, 3), (small, 6))
    )

    assert (samples_of_large == samples_of_small) is is_alike


def test_rows_of_tensors_are_what_collating_samples_gives() -> None:
    """Rows of a TensorDataset are the same as collated samples, also for subsets and unusual keys."""
    dataset = TensorDataset(torch.rand(9, 2, 3), torch.arange(9, dtype=torch.uint8), torch.rand(9) > 0.5)
    loaders = [
        DataLoader(dataset, 4),
        DataLoader(Subset(Subset(dataset, range(8, -1, -1)), [5, 0, 3, 3, 1]), 4),
        DataLoader(dataset, 2, sampler=[slice(0, 2), slice(3, 5)]),
        DataLoader(dataset, 2, sampler=[[0, 1], [7, 8]]),
    ]

    for loader in loaders:
        for ours, torchs in zip(loop.resumable(loader), loader, strict=True):
            assert type(ours) is type(torchs) is list
            for one, other in zip(ours, torchs, strict=True):
                assert one.dtype == other.dtype
                assert torch.equal(one, other)


def test_an_epoch_has_its_own_augmentations() -> None:
    """A sample draws other random numbers in each epoch."""
    loader = loop.resumable(DataLoader(Augmented(6), 6))

    first, second = take(loader, 2)

    assert first[0] == second[0]
    for column in (1, 2, 3):
        assert len(set(first[column] + second[column])) == 12


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_generators_of_the_training_are_not_disturbed(num_workers: int) -> None:
    """Neither samplers, samples nor collating change the training's random generators."""
    loader = loop.resumable(
        DataLoader(Augmented(22), 4, sampler=Drawing(), num_workers=num_workers, collate_fn=collate_drawing)
    )
    rng.seed_all(3)
    expected = [(random.random(), np.random.rand(), float(torch.rand(()))) for _ in range(8)]
    rng.seed_all(3)

    found = [(random.random(), np.random.rand(), float(torch.rand(()))) for _ in islice(loader.stream(), 8)]

    assert found == expected


def collate_drawing(samples: list[Any]) -> Any:
    return [sample[0] for sample in samples], random.random(), float(torch.rand(()))


@pytest.mark.parametrize("drawing", [3, 7, 11])
def test_a_dataset_that_draws_late_draws_by_the_position(drawing: int) -> None:
    """A dataset that draws only for late samples draws by their position, and leaves global generators alone."""
    early, late = (
        loop.resumable(
            DataLoader(RarelyAugmented(22), 2, sampler=[drawing if number == at else 0 for number in range(8)])
        )
        for at in (1, 5)
    )
    rng.seed_all(3)
    expected = [random.random(), np.random.rand(), float(torch.rand(()))]
    rng.seed_all(3)

    first, second = take(early, 4), take(late, 4)

    assert [random.random(), np.random.rand(), float(torch.rand(()))] == expected
    drawn = [number for batch in (first[0], second[2]) for column in batch[1:] for number in column if number]
    assert len(set(drawn)) == 2
    late.load_state_dict({**late.state_dict(), "epoch": 0, "offset": 4})
    assert take(late, 2) == second[2:]
    others = loop.resumable(
        DataLoader(RarelyAugmented(22), 1, sampler=[drawing if number == 5 else 0 for number in range(8)])
    )
    assert [column[0] for column in take(others, 6)[5]] == [column[1] for column in second[2]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_generator_that_is_drawn_from_late_draws_by_the_position(num_workers: int) -> None:
    """A generator that only late samples use draws by the position, too."""
    loader = loop.resumable(DataLoader(LateAugmented(20), 2, num_workers=num_workers))
    random.seed(3)
    before = random.getstate()

    batches = take(loader, 10)

    assert random.getstate() == before
    for number, batch in enumerate(batches):
        fresh = loop.resumable(DataLoader(LateAugmented(20), 2))
        fresh.load_state_dict({**fresh.state_dict(), "offset": 2 * number})
        assert take(fresh, 1) == [batch]


def test_a_failure_that_depends_on_a_late_draw_comes_again() -> None:
    """A random failure of a sample is repeated after a resume."""
    numbers = []
    for size, offset in ((6, 0), (6, 4)):
        loader = loop.resumable(DataLoader(FailingAtRandom(size, 5), 2))
        loader.load_state_dict({**loader.state_dict(), "offset": offset})
        with pytest.raises(ValueError) as raised:
            take(loader, 3)
        numbers.append(raised.value.args)

    assert numbers[0] == numbers[1]


def test_what_a_sample_draws_is_the_same_in_every_version() -> None:
    """The random numbers of samples are the same in every version."""
    expected = []
    for position in range(6):
        seed = rng.key(7, "sample", position)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        expected.append([random.random(), float(np.random.normal()), float(torch.rand(()))])

    batches = take(loop.resumable(DataLoader(Augmented(6), 2), seed=7), 3)

    assert [list(sample[1:]) for batch in batches for sample in zip(*batch, strict=True)] == expected


def test_collating_may_draw_too() -> None:
    """Random numbers in collate_fn depend on the position only."""
    data = TensorDataset(torch.arange(10))
    loader = loop.resumable(DataLoader(data, 4, collate_fn=collate_drawing))
    state, first = loader.state_dict(), take(loader, 4)

    loader.load_state_dict(state)

    assert take(loader, 4) == first
    assert len({batch[1] for batch in first}) == 4


def test_an_epoch_ends_with_the_loop_over_it() -> None:
    """Code after the inner loop runs once per epoch, wherever the training was saved."""

    def train(loader: loop.ResumableLoader, events: list[str]) -> Iterator[dict[str, Any]]:
        for epoch in range(loader.epoch, 3):
            for batch in loader:
                events.append(f"{epoch} {plain(batch[0])}")
                yield loader.state_dict()
            events.append(f"end of {epoch}")

    whole: list[str] = []
    states = list(train(loop.resumable(augmented()), whole))
    assert len(states) == 18

    for index, state in enumerate(states, 1):
        loader = loop.resumable(augmented())
        loader.load_state_dict(state)
        events: list[str] = []
        list(train(loader, events))
        assert events == whole[index + (index - 1) // 6 :]


def test_a_loop_that_was_left_goes_on_with_the_next_batch() -> None:
    """A loop that was left continues with the next batch."""
    loader = loop.resumable(augmented())

    seen = [plain(batch[0]) for batch in islice(loader, 2)]
    seen += [plain(batch[0]) for batch in loader]

    assert sorted(index for batch in seen for index in batch) == list(range(22))
    assert (loader.epoch, loader.batches, loader.samples) == (1, 6, 22)


@pytest.mark.parametrize("data", [augmented, lambda: DataLoader(Counting(22), 4)], ids=["planned", "iterated"])
def test_an_epoch_that_was_left_after_its_last_batch_is_over(data: Callable[[], Any]) -> None:
    """An epoch that was left after its last batch is over, and a state from there has no more batches."""
    counted, iterated = loop.resumable(data()), loop.resumable(data())
    expected = [[plain(batch) for batch in iterated] for _ in range(3)]

    seen = [[plain(batch) for batch in islice(counted, 6)] for _ in range(3)]

    assert seen == expected
    resumed = loop.resumable(data())
    resumed.load_state_dict(counted.state_dict())
    assert (resumed.epoch, list(resumed), resumed.epoch) == (2, [], 3)


def test_an_epoch_that_is_over_is_left_at_the_beginning_of_the_next() -> None:
    """begin_epoch() for the epoch that comes next keeps samples that were carried over."""
    loader, other = (loop.resumable(augmented(), last_batch="carry") for _ in range(2))
    expected = [plain(batch) for _ in range(2) for batch in other]
    seen = [plain(batch) for batch in loader]

    loader.begin_epoch(1)

    assert seen + [plain(batch) for batch in loader] == expected


def test_an_epoch_is_left_for_the_beginning_of_another() -> None:
    """begin_epoch() leaves the current epoch, and the batches so far still count."""
    loader, other = loop.resumable(augmented()), loop.resumable(augmented())
    take(loader, 2)

    loader.begin_epoch(1)

    assert (loader.epoch, loader.batches) == (1, 2)
    list(other)
    assert [plain(batch) for batch in loader] == [plain(batch) for batch in other]


def test_counters_count_the_whole_training() -> None:
    """Counters count the samples of all ranks without repeated ones."""
    loader = loop.resumable(augmented(5), distributed=ranked(3, 4))

    take(loader, 3)

    assert (loader.epoch, loader.batches, loader.samples) == (1, 3, 42)
    assert loader.batches_per_epoch == len(loader) == 2


def test_batches_of_a_batch_sampler_count_their_samples() -> None:
    """Batches of a batch sampler count the samples of all ranks."""
    drawn = [len(draw.indices[0]) for draw, _ in islice(loop.resumable(LOADERS["batch sampler"]()).stream(), 7)]
    loader = loop.resumable(LOADERS["batch sampler"](), distributed=ranked(1, 2))

    counts = [draw.num_global for draw, _ in islice(loader.stream(), 4)]

    assert drawn == [1, 2, 3, 3, 2, 1, 3]
    assert counts == [3, 6, 3, 3]


def test_a_pass_over_all_data_moves_nothing() -> None:
    """A pass over all data does not move the training's position and is the same each time."""
    loader = loop.resumable(augmented(), last_batch="carry")
    first_batch = take(loader, 1)

    passes = [[plain(batch) for _, batch in loader.single_pass()] for _ in range(2)]

    assert passes[0] == passes[1]
    assert sorted(index for batch in passes[0] for index in batch[0]) == list(range(22))
    assert passes[0][0] == first_batch[0]
    assert loader.batches == 1


def test_the_seed_is_the_choice_of_the_user() -> None:
    """Each seed has its own order, and a resume keeps the first seed."""
    first, second = (loop.resumable(augmented(), seed=seed) for seed in (1, 2))
    state = first.state_dict()
    expected = take(first, 6)

    assert take(second, 6) != expected
    second.load_state_dict(state)
    assert take(second, 6) == expected


def test_the_state_is_plain(tmp_path: Any) -> None:
    """The state can be loaded with weights_only."""
    loader = loop.resumable(LOADERS["user's, with state"]())
    take(loader, 3)
    torch.save(loader.state_dict(), tmp_path / "state.pt")

    assert torch.load(tmp_path / "state.pt", weights_only=True) == loader.state_dict()


def test_ranks_are_those_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a context, rank and size come from torchrun's variables."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    for name, value in zip(names, "131301", strict=True):
        monkeypatch.setenv(name, value)

    loader = loop.resumable(DataLoader(TensorDataset(torch.arange(12)), 2))

    assert [draw.indices for draw, _ in loader.single_pass()] == [[2, 3], [8, 9]]


OPTIONS: dict[str, Any] = {
    "num_workers": 2,
    "pin_memory": False,
    "timeout": 50,
    "multiprocessing_context": "fork",
    "prefetch_factor": 3,
    "persistent_workers": True,
    "in_order": True,
}


def test_the_workers_end_with_the_loader() -> None:
    """Workers end as soon as the loader is deleted."""
    loader = loop.resumable(augmented(num_workers=1))
    take(loader, 1)
    assert multiprocessing.active_children()

    del loader

    assert not multiprocessing.active_children()


def test_workers_of_pinned_batches_end_before_their_process_does(run_script: Callable[..., Any]) -> None:
    """Torch's thread that pins the batches is not left reading from workers that Python ends."""
    _, output, errors = run_script(
        """
        import atexit
        import multiprocessing
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from core_sdk import loop

        atexit.register(lambda: print(len(multiprocessing.active_children())))
        data = TensorDataset(torch.arange(40))
        loader = loop.resumable(DataLoader(data, batch_size=4, num_workers=2, pin_memory=True))
        for batch in loader:
            pass
        print(len(multiprocessing.active_children()))
        """
    )

    assert output == "2\n0\n", errors


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_workers_leave_the_first_ctrl_c_to_the_script(start_script: Callable[..., Script], start_method: str) -> None:
    """Ctrl-C does not end workers before the script has stopped."""
    script = start_script(
        """
        import os, signal, sys
        from core_sdk import core, loop
        from torch.utils.data import DataLoader

        if __name__ == "__main__":
            os.setpgrp()
            with core.init() as core_context:
                loader = loop.resumable(DataLoader(range(100), 1, num_workers=1, multiprocessing_context=sys.argv[1]))
                core_context.preempt.should_preempt()
                batches = iter(loader)
                next(batches)
                os.killpg(0, signal.SIGINT)  # as a terminal does
                print([next(batches).item() for _ in range(20)][-1], core_context.preempt.should_preempt())
        """,
        start_method,
    )

    status, output, errors = script.wait()
    assert (status, output) == (0, "20 True\n"), errors


def test_workers_may_be_spawned() -> None:
    """The dataset, the initialization and the collate function can be pickled for spawned workers."""
    source: Any = loop.resumable(DataLoader(Augmented(22), 4, worker_init_fn=start_worker))._source

    pickle.loads(
        pickle.dumps((source._streaming.dataset, source._streaming.worker_init_fn, source._streaming.collate_fn))
    )


def test_all_options_of_the_loader_are_kept() -> None:
    """All options of the torch loader are kept."""
    original = augmented(**OPTIONS)
    source = loop.resumable(original)._source

    for kept in (source._streaming, source._passing):  # type: ignore[attr-defined]
        for name in (*OPTIONS, "pin_memory_device"):
            assert getattr(kept, name) == getattr(original, name), name


def test_no_option_of_the_loader_is_unknown() -> None:
    """Every option of torch's DataLoader is known, so that a new one is noticed."""
    ours = {
        "dataset",
        "batch_size",
        "shuffle",
        "sampler",
        "batch_sampler",
        "drop_last",
        "generator",
        "collate_fn",
        "worker_init_fn",
    }

    known = ours | set(OPTIONS) | {"pin_memory_device", "self"}

    assert set(DataLoader.__init__.__code__.co_varnames[: DataLoader.__init__.__code__.co_argcount]) | {
        "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
    } == known  # fmt: skip
    assert DataLoader.__init__.__code__.co_kwonlyargcount == 4


def start_worker(worker_id: int) -> None:
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.started = f"started as {worker_id}"


def test_what_starts_the_workers_sees_the_dataset() -> None:
    """worker_init_fn sees the user's dataset."""
    loader = loop.resumable(DataLoader(Described(), 2, num_workers=2, worker_init_fn=start_worker))

    assert take(loader, 2) == [["Described started as 0"] * 2, ["Described started as 1"] * 2]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_failing_sample_is_named(num_workers: int) -> None:
    """A failing sample raises the exception of torch's loader with a note that names it; the loader stays usable."""
    loader = loop.resumable(DataLoader(Failing(8, 5), 2, num_workers=num_workers))

    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            take(loader, 4)
        shown = f"{caught.value} {getattr(caught.value, '__notes__', '')}"
        assert "a broken sample" in shown
        assert "from the dataset when it was asked for 5, in epoch 0" in shown
    assert loader.batches == 2


def test_an_interrupt_leaves_the_generators_as_they_were() -> None:
    """An interrupt restores the random generators and the loader's position."""
    loader = loop.resumable(DataLoader(Failing(8, 5, KeyboardInterrupt), 2))
    random.seed(1)
    expected = random.random()
    random.seed(1)

    with pytest.raises(KeyboardInterrupt):
        take(loader, 4)

    assert random.random() == expected
    assert loader.batches == 2


def test_a_worker_that_takes_too_long_leaves_the_samples_that_it_had() -> None:
    """If a worker times out, a note names its samples."""
    loader = loop.resumable(DataLoader(Lethal(8, 5, kills=False), 2, num_workers=1, timeout=1))

    with pytest.raises(RuntimeError, match="DataLoader timed out") as caught:
        take(loader, 4)

    assert "by batches: [4, 5] of epoch 0; [6, 7] of epoch 0. Take" in caught.value.__notes__[0]


def test_a_worker_that_dies_leaves_the_samples_that_it_had() -> None:
    """If a worker dies, a note names its samples."""
    script = """
        from loop.toy_datasets import Lethal
        from torch.utils.data import DataLoader
        import core_sdk as det
        for batch in det.loop.resumable(DataLoader(Lethal(8, 5, kills=True), 2, num_workers=1)):
            pass
    """

    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "[4, 5] of epoch 0" in ended.stderr
    assert "Take them from the dataset by hand to find one that fails" in ended.stderr


@needs("kernel")
def test_a_notebook_says_where_classes_must_be_for_workers_that_are_not_forked(kernel: Any) -> None:
    """In a notebook, an error says that classes must be in a file for spawned workers."""
    cell = """
        from torch.utils.data import DataLoader, Dataset
        from core_sdk import loop

        class Numbers(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return index

        print([*loop.resumable(DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="METHOD"))])
    """

    shown = {method: run(kernel, textwrap.dedent(cell).replace("METHOD", method)) for method in ("spawn", "fork")}

    assert "class, and all other classes and functions that the loader is given, into a file" in shown["spawn"]
    assert "tensor([2, 3])" in shown["fork"]


def test_a_dataset_of_another_length_is_refused() -> None:
    """A dataset of another length, or another order, is refused."""
    state = loop.resumable(DataLoader(Augmented(22))).state_dict()

    with pytest.raises(errors.DataError, match="the length of the data was 22 and is 23"):
        loop.resumable(DataLoader(Augmented(23))).load_state_dict(state)
    with pytest.raises(errors.DataError, match="the order of the data was Sequential and is Shuffled"):
        loop.resumable(DataLoader(Augmented(22), shuffle=True)).load_state_dict(state)


class Unstable(ByEpoch):
    """A sampler with a generator of its own."""

    _own = random.Random(1)

    def __iter__(self) -> Iterator[int]:
        return iter([self._own.randrange(self._size) for _ in range(self._size)])


def test_epochs_may_have_other_numbers_of_batches() -> None:
    """Epochs may have different numbers of batches; len() is the current one's, and all ranks end it alike."""
    whole = loop.resumable(DataLoader(Augmented(22), batch_sampler=Budget()))
    epochs = [(len(whole), [plain(batch) for batch in whole]) for _ in range(6)]

    assert len({length for length, _ in epochs}) > 1
    assert all(length == len(batches) for length, batches in epochs)
    assert (whole.batches_per_epoch, whole.samples) == (None, 6 * 22)
    loaders = [
        loop.resumable(DataLoader(Augmented(22), batch_sampler=Budget()), distributed=ranked(rank, 2))
        for rank in (0, 1)
    ]
    for _, batches in epochs:
        parts = [[plain(batch) for batch in loader] for loader in loaders]
        assert [batch for pair in zip(*parts, strict=True) for batch in pair][: len(batches)] == batches


def test_an_epoch_that_is_too_short_for_all_ranks_is_named() -> None:
    """An epoch that is too short for a batch is named if its rest would be dropped."""

    class Shrinking(ByEpoch):
        def __iter__(self) -> Iterator[int]:
            return iter(range(6 - 5 * self._epoch))

    loader = loop.resumable(DataLoader(Augmented(22), 4, sampler=Shrinking(22)), last_batch="drop")

    with pytest.raises(errors.DataError, match="epoch 1 has 1 of 4 for a batch: make the batches smaller, or keep"):
        take(loader, 2)


class Given(ByEpoch):
    """A sampler that gives the samples that it is told, perhaps without an end."""

    def __init__(self, samples: Iterator[int]) -> None:
        super().__init__(2)
        self._samples = samples

    def __iter__(self) -> Iterator[int]:
        return self._samples


@pytest.mark.parametrize(("samples", "given"), [(cycle([1]), "65536 or more"), (iter([]), "nothing")])
def test_a_sampler_gives_one_round_of_the_data(samples: Iterator[int], given: str) -> None:
    """A sampler that gives nothing, or has no end, is refused."""
    with pytest.raises(errors.DataError, match=f"Given gives {given} in epoch 0: let it give one round of the data"):
        loop.resumable(DataLoader(Augmented(22), sampler=Given(samples)))


def test_a_sampler_that_cannot_be_exact_is_refused() -> None:
    """A sampler that cannot resume exactly is refused unless exact=False."""
    loader = DataLoader(Augmented(22), 4, sampler=Unstable(22))

    with pytest.raises(errors.NotExactError, match=r"give it set_epoch.*or pass exact=False"):
        loop.resumable(loader)
    assert len(take(loop.resumable(loader, exact=False), 8)) == 8


def test_batches_in_no_order_cannot_be_exact() -> None:
    """in_order=False is refused unless exact=False."""
    loader = augmented(num_workers=2, in_order=False)

    with pytest.raises(errors.NotExactError, match=r"in_order=False gives batches in the order.*leave it out"):
        loop.resumable(loader)
    assert len(take(loop.resumable(loader, exact=False), 3)) == 3


def test_a_batch_sampler_that_is_divided_already_is_refused() -> None:
    """A batch sampler that already divides the data among ranks is refused."""
    sampler: DistributedSampler[Any] = DistributedSampler(Augmented(22), 2, 0)

    class Custom(BatchSampler):
        pass

    with pytest.raises(ValueError, match="Custom gives the part of one rank of 2"):
        loop.resumable(DataLoader(Augmented(22), batch_sampler=Custom(sampler, 2, False)), distributed=ranked(0, 2))


def test_other_kinds_of_loaders_are_refused() -> None:
    """Other kinds of loaders are refused with alternatives."""

    class Moving(DataLoader[Any]):
        def __iter__(self) -> Any:
            return (batch + 1 for batch in super().__iter__())

    with pytest.raises(TypeError, match=r"list is no DataLoader of torch.*or pass exact=False"):
        loop.resumable([1, 2])
    with pytest.raises(errors.NotExactError, match=r"does not iterate as .*leave its __iter__.*or pass exact=False"):
        loop.resumable(Moving(range(4)))  # type: ignore[arg-type]
    assert take(loop.resumable(Moving(range(4)), exact=False), 2) == [[1], [2]]  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="this loader is resumable already"):
        loop.resumable(loop.resumable(augmented()))


def test_one_sample_at_a_time_is_not_a_batch() -> None:
    """With batch_size=None samples are given as the dataset returns them."""
    data = TensorDataset(torch.arange(10, 20))
    single = loop.resumable(DataLoader(data, batch_size=None))
    several = loop.resumable(DataLoader(data, batch_size=None, sampler=BatchSampler(SequentialSampler(data), 4, True)))

    assert take(single, 2) == [[10], [11]]
    assert take(several, 3) == [[[10, 11, 12, 13]], [[14, 15, 16, 17]], [[10, 11, 12, 13]]]


def test_a_loop_that_sets_the_epoch_of_a_sampler_needs_no_change() -> None:
    """set_epoch() on the loader's samplers has no effect, so that existing loops need no change."""
    data: Any = torch.arange(10)
    loaders = [loop.resumable(DataLoader(data, batch_size=2, shuffle=True), seed=0) for _ in range(2)]

    drawn: list[list[list[int]]] = []
    for loader, epoch_told in zip(loaders, (0, 7), strict=True):
        loader.sampler.set_epoch(epoch_told)
        loader.batch_sampler.sampler.set_epoch(epoch_told)
        drawn.append([batch.tolist() for batch in loader])

    assert drawn[0] == drawn[1]
    assert (len(loaders[0].sampler), len(loaders[0].batch_sampler)) == (10, 5)
