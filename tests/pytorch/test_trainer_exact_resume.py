"""A training that ends anywhere goes on exactly as if it had not ended: the same samples, losses and random numbers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from pytorch.exact import NUM_BATCHES, SAVED_AT, VALIDATED_AT, End, LostPowerError, notes, samples, train
from pytorch.ranks import Ranks

from core_sdk._machine.processes import STOPPED

Whole = Callable[[int], Path]


@pytest.fixture(scope="module")
def whole(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The folder of a training on so many ranks, without workers, that has not been disturbed."""

    @functools.cache
    def train_whole(num_ranks: int) -> Path:
        folder = tmp_path_factory.mktemp("whole")
        ranks.run(train, num_ranks, folder, 0)
        return folder

    return train_whole


def started(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "end",
    [
        End("batch", 5, "SIGTERM"),
        End("batch", 0, "SIGTERM"),
        End("batch", 8, "exception"),
        End("validation", VALIDATED_AT[0] - 1, "SIGTERM"),
        End("checkpoint", SAVED_AT[1] - 1, "exception"),
    ],
    ids=str,
)
def test_a_training_that_ends_goes_on_exactly(tmp_path: Path, whole: Whole, end: End) -> None:
    """A training that ends in any phase resumes exactly, in one process."""
    ended = started(tmp_path, "ended")

    with contextlib.suppress(LostPowerError):
        train(str(ended), "0", str(end))
    before = notes(ended)
    train(str(ended), "0")

    assert "result" not in before["rank 0"]
    assert notes(ended) == notes(whole(1))


ENDS = [
    *(End("batch", index, "SIGTERM") for index in range(NUM_BATCHES)),
    *(End("batch", index, "SIGKILL") for index in range(NUM_BATCHES)),
    *(End("validation", batches - 1, "SIGTERM") for batches in VALIDATED_AT),
    *(End("validation", batches - 1, "SIGKILL") for batches in VALIDATED_AT),
    *(End("checkpoint", batches - 1, "SIGTERM") for batches in SAVED_AT),
    *(End("checkpoint", batches - 1, "SIGKILL") for batches in SAVED_AT),
]


@pytest.mark.parametrize(
    ("num_ranks", "num_workers", "end"),
    [
        pytest.param(*case, id=f"{case[0]}-{case[1]}-{case[2]}")
        for case in ((num_ranks, num_workers, end) for num_ranks in (1, 2) for num_workers in (0, 2) for end in ENDS)
    ],
)
def test_ranks_and_workers_that_end_go_on_exactly(
    tmp_path: Path, ranks: Ranks, whole: Whole, num_ranks: int, num_workers: int, end: End
) -> None:
    """Trainings with ranks and workers that are stopped or killed resume exactly."""
    ended = started(tmp_path, "ended")

    codes = [process.wait() for process in ranks.start(train, num_ranks, ended, num_workers, end)]
    before = notes(ended)
    ranks.run(train, num_ranks, ended, num_workers)

    assert (-9 in codes) == (end.how == "SIGKILL")
    assert end.how == "SIGKILL" or set(codes) <= {0, STOPPED}
    assert "result" not in before["rank 0"] or end.batch_idx == NUM_BATCHES - 1
    assert notes(ended) == notes(whole(num_ranks))


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_any_number_of_ranks_trains_the_same_global_batches(whole: Whole, num_ranks: int) -> None:
    """Any number of ranks trains the same global batches."""
    on_ranks, on_one = samples(whole(num_ranks)), samples(whole(1))

    assert {batch: set(each) for batch, each in on_ranks.items()} == {
        batch: set(each) for batch, each in on_one.items()
    }


@pytest.mark.parametrize(
    ("num_before", "num_after", "num_workers"), [(2, 1, 0), (2, 3, 0), (1, 2, 2), (4, 2, 2), (2, 4, 2)]
)
def test_another_number_of_ranks_goes_on_with_the_same_global_batches(
    tmp_path: Path, ranks: Ranks, whole: Whole, num_before: int, num_after: int, num_workers: int
) -> None:
    """A resume on another number of ranks trains the same global batches."""
    ended = started(tmp_path, "ended")

    for process in ranks.start(train, num_before, ended, num_workers, End("batch", 6, "SIGTERM")):
        process.wait()
    assert 6 <= max(samples(ended)) < NUM_BATCHES - 1
    ranks.run(train, num_after, ended, num_workers)

    on_ranks, on_one = samples(ended), samples(whole(1))
    assert {batch: set(each) for batch, each in on_ranks.items()} == {
        batch: set(each) for batch, each in on_one.items()
    }
