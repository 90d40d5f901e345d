"""How the ranks learn which of them bring a checkpoint to a report."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from distributed.ranks import Threads

from core_sdk.core import DistributedContext
from core_sdk.train._worker.meeting import CheckpointMeeting, Decided, Standing, decide

Script = Callable[[CheckpointMeeting, int], object]


def of_ranks(script: Script) -> Callable[[DistributedContext], object]:
    def run(distributed: DistributedContext) -> object:
        with distributed:
            meeting = CheckpointMeeting(distributed.channel)
            result = script(meeting, distributed.rank)
            meeting.leave()
            # As the end of a Context, which waits for the other ranks.
            distributed.allgather(None)
            return result

    return run


def test_rank_0_alone_or_all_ranks_bring_one(threads: Threads) -> None:
    """A checkpoint comes from rank 0 alone or from all ranks, and ranks without one do not wait for a late rank 0."""

    def script(meeting: CheckpointMeeting, rank: int) -> list[bool]:
        time.sleep(0.2 if rank == 0 else 0)
        return [
            meeting.arrive(brings=False),
            meeting.arrive(brings=rank == 0),
            meeting.arrive(brings=True),
            meeting.arrive(brings=rank == 0),
        ]

    rank_0, *others = threads.run(3, of_ranks(script))

    assert [rank_0, *others] == [[False, False, True, False]] * 3


def test_rank_0_waits_for_ranks_that_come_later(threads: Threads) -> None:
    """Rank 0 waits for ranks that report later, since they may still bring a checkpoint."""

    def script(meeting: CheckpointMeeting, rank: int) -> list[bool]:
        time.sleep(0.2 if rank else 0)
        return [meeting.arrive(brings=True), meeting.arrive(brings=rank != 1)]

    outcomes = threads.try_to_run(2, of_ranks(script))

    assert outcomes.values == {0: [True, False], 1: [True, False]}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            lambda meeting, rank: meeting.arrive(brings=rank == 1),
            "rank 1 gives a checkpoint in its report 1, and rank 0",
        ),
        (
            lambda meeting, rank: [meeting.arrive(brings=True)] if rank == 1 else time.sleep(0.2),
            "rank 0 has ended after 0 reports",
        ),
        (
            lambda meeting, rank: [meeting.arrive(brings=True)] if rank == 0 else None,
            "rank 0 gives a checkpoint in its report 1, and rank 1 has ended after 0 reports",
        ),
        (
            lambda meeting, rank: meeting.arrive(brings=rank != 2),
            "rank 1 gives a checkpoint in its report 1, and rank 2 gives none in its own",
        ),
    ],
    ids=["not-rank-0", "rank-0-makes-fewer", "rank-1-makes-fewer", "some"],
)
def test_ranks_that_report_unevenly_are_named(threads: Threads, script: Script, message: str) -> None:
    """Ranks that report unevenly get an error that says what each has done and what to do."""
    size = 3 if "rank 2" in message else 2

    outcomes = threads.try_to_run(size, of_ranks(script))

    uneven = [str(error) for error in outcomes.errors.values() if isinstance(error, ValueError)]
    assert any(message in text for text in uneven), outcomes.errors


def test_a_rank_that_is_ahead_does_not_decide_an_earlier_report(threads: Threads) -> None:
    """A rank that is ahead does not influence the decision on an earlier report's checkpoint."""

    def script(meeting: CheckpointMeeting, rank: int) -> list[bool]:
        time.sleep(0.2 if rank == 0 else 0)
        return [meeting.arrive(brings=rank == 0), meeting.arrive(brings=False), meeting.arrive(brings=True)]

    assert threads.run(2, of_ranks(script)) == [[False, False, True]] * 2


@pytest.mark.parametrize(
    ("standings", "decided"),
    [
        ([Standing(1), Standing(1)], None),
        ([Standing(1, 1), Standing()], None),
        ([Standing(1, 1), Standing(2)], Decided(1)),
        ([Standing(1, 1), Standing(1, 1)], Decided(1, is_shared=True)),
        ([Standing(1, 1), Standing(2, 2)], Decided(1)),
        ([Standing(1), Standing(2, 2)], None),
        ([Standing(2), Standing(2, 2)], Decided(2, uneven=(1, 0, "gives none in its own"))),
        ([Standing(2), Standing(2, 2), Standing(5, 5)], Decided(2, uneven=(1, 0, "gives none in its own"))),
        ([Standing(2, has_ended=True), Standing(3, 3)], Decided(3, uneven=(1, 0, "has ended after 2 reports"))),
        ([Standing(3, 3), Standing(3, 3), Standing(3)], Decided(3, uneven=(1, 2, "gives none in its own"))),
        ([Standing(), Standing(3, 3), Standing(2, 0, True)], Decided(3, uneven=(1, 2, "has ended after 2 reports"))),
    ],
)
def test_rank_0_decides_as_soon_as_it_knows_enough(standings: list[Standing], decided: Decided | None) -> None:
    """Rank 0 decides as soon as it can: a rank waiting in a later report brought none to an earlier one."""
    assert decide(standings, 0) == decided


def test_every_rank_that_waits_names_the_ranks_that_differ(threads: Threads) -> None:
    """The error of each waiting rank names two ranks that differ, and does not blame rank 0 wrongly."""
    outcomes = threads.try_to_run(4, of_ranks(lambda meeting, rank: meeting.arrive(brings=rank < 2)))

    words = "rank 1 gives a checkpoint in its report 1, and rank 2 gives none in its own"
    for rank in (0, 1):
        assert isinstance(outcomes.errors[rank], ValueError)
        assert words in str(outcomes.errors[rank])
