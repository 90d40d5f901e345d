"""How the ranks learn which of them bring a checkpoint to a report."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from distributed.ranks import Threads

from core_sdk.core import DistributedContext
from core_sdk.errors import UnevenReportsError
from core_sdk.train.worker.meeting import CheckpointMeeting

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
    """Ranks that bring none do not wait, however late rank 0 is."""

    def script(meeting: CheckpointMeeting, rank: int) -> list[list[int]]:
        time.sleep(0.2 if rank == 0 else 0)
        return [
            meeting.arrive(brings=False),
            meeting.arrive(brings=rank == 0),
            meeting.arrive(brings=True),
            meeting.arrive(brings=rank == 0),
        ]

    rank_0, *others = threads.run(3, of_ranks(script))

    assert rank_0 == [[], [0], [0, 1, 2], [0]]
    assert others == [[[], [], [0, 1, 2], []]] * 2


def test_rank_0_waits_for_ranks_that_come_later(threads: Threads) -> None:
    """They may still bring one."""

    def script(meeting: CheckpointMeeting, rank: int) -> list[int]:
        time.sleep(0.2 if rank else 0)
        return meeting.arrive(brings=rank != 1)

    outcomes = threads.try_to_run(2, of_ranks(script))

    assert outcomes.values == {0: [0], 1: []}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            lambda meeting, rank: meeting.arrive(brings=rank == 1),
            "rank 1 gives a checkpoint in its report 1, and rank 0",
        ),
        (lambda meeting, rank: [meeting.arrive(brings=True)] if rank == 1 else time.sleep(0.2), "rank 0 has made 0"),
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
    """With what each has done, and what to do."""
    size = 3 if "rank 2" in message else 2

    outcomes = threads.try_to_run(size, of_ranks(script))

    uneven = [str(error) for error in outcomes.errors.values() if isinstance(error, UnevenReportsError)]
    assert any(message in text for text in uneven), outcomes.errors
