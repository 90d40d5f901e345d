"""Global batches are a function of the order and of a position."""

from __future__ import annotations

from itertools import islice

import pytest

from core_sdk.loop._orders import Sequential, Shuffled
from core_sdk.loop._plan import Draw, LastBatch, Plan, Position

SIZE = 24
LAST_BATCHES: tuple[LastBatch, ...] = ("drop", "keep", "carry")


def take(plan: Plan, count: int, position: Position = Position(), rank: int = 0, num_ranks: int = 1) -> list[Draw]:  # noqa: B008
    return list(islice(plan.batches(position, rank, num_ranks), count))


def global_batches(plan: Plan, count: int, num_ranks: int, position: Position = Position()) -> list[list[int]]:  # noqa: B008
    parts = [take(plan, count, position, rank, num_ranks) for rank in range(num_ranks)]
    return [
        [index for draw in draws if not draw.is_filler for index in draw.indices] for draws in zip(*parts, strict=True)
    ]


@pytest.mark.parametrize("last_batch", LAST_BATCHES)
@pytest.mark.parametrize("num_samples", [24, 48, 50, 61, 25])
def test_global_batches_do_not_depend_on_the_number_of_ranks(last_batch: LastBatch, num_samples: int) -> None:
    """Global batches are the same on any number of ranks, also at the end of an epoch."""
    plan = Plan(Shuffled(num_samples, 5), SIZE, last_batch)
    expected = global_batches(plan, 12, 1)

    for num_ranks in (2, 3, 4, 5, 6, 7, 8):
        assert global_batches(plan, 12, num_ranks) == expected


@pytest.mark.parametrize("last_batch", LAST_BATCHES)
def test_a_seek_gives_what_a_walk_gives(last_batch: LastBatch) -> None:
    """Starting at any position gives the same batches as reading up to it, on every rank."""
    plan = Plan(Shuffled(29, 5), 6, last_batch)
    for rank in range(2):
        walk = take(plan, 22, rank=rank, num_ranks=2)
        for index, draw in enumerate(walk[:-4], 1):
            assert take(plan, 4, Position(draw.epoch, draw.offset), rank, 2) == walk[index : index + 4]


def test_a_seek_may_begin_anywhere() -> None:
    """A plan can start at any position, also within a batch."""
    plan = Plan(Sequential(20), 6, "carry")

    assert [draw.indices for draw in take(plan, 3, Position(0, 11))] == [
        [11, 12, 13, 14, 15, 16],
        [17, 18, 19, 0, 1, 2],
        [3, 4, 5, 6, 7, 8],
    ]


def test_blocks_do_not_show() -> None:
    """Results do not depend on the blocks in which the order is computed."""
    plan = Plan(Sequential(10_000), 6, "keep")

    walked = [index for draw in take(plan, 1667, rank=1, num_ranks=2) for index in draw.indices]

    assert walked == [index for index in range(10_000) if index % 6 >= 3 and index < 9996] + [9998, 9999]


def test_what_is_left_is_dropped() -> None:
    """With "drop" the rest is dropped, and the epoch ends with its last full batch."""
    draws = take(Plan(Sequential(8), 3, "drop"), 3)

    assert draws[0] == Draw(0, 0, [0, 1, 2], 3, 3, is_epoch_end=False, is_filler=False)
    assert draws[1] == Draw(0, 3, [3, 4, 5], 3, 8, is_epoch_end=True, is_filler=False)
    assert draws[2] == Draw(1, 8, [0, 1, 2], 3, 3, is_epoch_end=False, is_filler=False)


def test_what_is_left_is_kept() -> None:
    """With "keep" the rest is a smaller batch, divided evenly among the ranks."""
    plan = Plan(Sequential(11), 4, "keep")

    assert take(plan, 3)[2] == Draw(0, 8, [8, 9, 10], 3, 11, is_epoch_end=True, is_filler=False)
    assert [take(plan, 3, rank=rank, num_ranks=2)[2].indices for rank in range(2)] == [[8], [9, 10]]


def test_what_is_left_is_carried_over() -> None:
    """With "carry" the rest is filled up from the next epoch."""
    draws = take(Plan(Sequential(5), 3, "carry"), 4)

    assert [draw.indices for draw in draws] == [[0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1]]
    assert [draw.epoch for draw in draws] == [0, 0, 1, 1]
    assert [draw.offset for draw in draws] == [3, 6, 4, 7]
    assert [draw.is_epoch_end for draw in draws] == [False, True, False, True]


def test_a_rank_without_a_sample_takes_one_that_another_rank_has() -> None:
    """A rank without a sample repeats another rank's, and the repeated sample does not count."""
    plan = Plan(Sequential(10), 8, "keep")

    parts = [take(plan, 2, rank=rank, num_ranks=8)[1] for rank in range(8)]

    assert sorted(part.indices[0] for part in parts if not part.is_filler) == [8, 9]
    assert all(part.indices in ([8], [9]) and part.start == part.indices[0] for part in parts)


@pytest.mark.parametrize(
    ("num_samples", "last_batch", "expected"),
    [(8, "drop", 2), (8, "keep", 3), (8, "carry", None), (9, "carry", 3), (2, "keep", 1)],
)
def test_batches_per_epoch(num_samples: int, last_batch: LastBatch, expected: int | None) -> None:
    """The number of batches per epoch is None if epochs differ."""
    assert Plan(Sequential(num_samples), 3, last_batch).batches_per_epoch == expected


def test_what_cannot_be_batched_is_refused() -> None:
    """Data that cannot be divided into batches are refused with advice."""
    with pytest.raises(ValueError, match="no whole batch of 8: make the batches smaller, or keep a smaller one"):
        Plan(Sequential(7), 8, "drop")
    with pytest.raises(ValueError, match="there are no data"):
        Plan(Sequential(0), 8)
    with pytest.raises(ValueError, match="give 1 or more"):
        Plan(Sequential(7), 0)
    with pytest.raises(ValueError, match="give one of drop, keep, carry"):
        Plan(Sequential(7), 1, "pad")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a global batch of 2 has nothing for some of 3 ranks: make it larger"):
        take(Plan(Sequential(70), 2), 1, num_ranks=3)
