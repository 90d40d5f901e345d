"""A rank that counts as silent is put into words that name who waits for whom."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from processes import wait_for

from core_sdk._execution.agent.stalls._diagnosis import (
    ProcessState,
    RankState,
    StackFrame,
    common_state,
    main_thread,
    told,
)
from core_sdk._ground.signs import LastCollective, Pulse, SignsOfLife, StallBounds, collective_calls

BOUNDS = StallBounds(10, 60, 3600)
STACKS = """Thread 0x00007f (most recent call first):
  File "/x/threading.py", line 331 in wait
  File "/x/other.py", line 2 in run

Current thread 0x00008f (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/home/me/train.py", line 88 in step
  File "/home/me/train.py", line 120 in <module>
"""


def pulse(times: list[float], bounds: StallBounds = BOUNDS) -> Pulse:
    seen = Pulse(bounds)
    for count, at in enumerate(times, 1):
        seen.see(at, count, at)
    return seen


def in_call(*frames: tuple[str, int, str]) -> ProcessState:
    return ProcessState(7, [StackFrame(*frame) for frame in frames])


ALL_REDUCE = in_call(
    ("/v/site-packages/torch/distributed/distributed_c10d.py", 9, "all_reduce"), ("/me/train.py", 90, "<module>")
)
LOADING = in_call(
    ("/usr/lib/python3.11/selectors.py", 415, "select"),
    ("/v/site-packages/torch/utils/data/dataloader.py", 1, "_next_data"),
    ("/me/train.py", 88, "<module>"),
)


def test_who_has_hardly_begun_is_never_silent() -> None:
    """The first step may compile for an hour."""
    assert pulse([1.0, 2.0, 3.0, 4.0]).silent_s(9999.0) is None


@pytest.mark.parametrize(("gap", "bound"), [(0.01, 60.0), (20.0, 200.0), (900.0, 3600.0)])
def test_the_bound_follows_the_usual_silence(gap: float, bound: float) -> None:
    seen = pulse([gap * number for number in range(1, 10)])

    assert seen.silent_s(9 * gap + bound - 0.01) is None
    assert seen.silent_s(9 * gap + bound + 0.01) == pytest.approx(bound + 0.01)


def test_a_save_may_take_as_long_as_saves_take() -> None:
    """The first one has the longest time; the next ones ten times as long as it."""
    seen = pulse([float(number) for number in range(1, 10)])
    seen.see(10.0, 9, 9.0, busy_since=10.0)
    assert seen.bound_s() == 3600
    seen.see(40.0, 9, 9.0, busy_since=10.0)
    seen.see(41.0, 10, 40.5)
    assert seen.bound_s() == 60
    seen.see(50.0, 11, 49.0, busy_since=50.0)
    assert seen.bound_s() == 300


def test_who_was_seen_at_work_has_given_a_sign() -> None:
    seen = pulse([float(number) for number in range(1, 10)])

    seen.excuse(80.0)

    assert seen.silent_s(80.0 + 709) is None
    assert seen.silent_s(80.0 + 711) is not None


def test_bounds_are_read() -> None:
    assert StallBounds.parse("3,1,9") == StallBounds(3, 1, 9)
    assert StallBounds.parse("off") is None
    for text in ("1", "0,1,2", "1,3,2", "a,b,c"):
        with pytest.raises(ValueError):
            StallBounds.parse(text)


def test_the_main_thread_is_the_last_one() -> None:
    assert [frame.line for frame in main_thread(STACKS)] == [327, 88, 120]


def test_who_waits_for_whom_is_said() -> None:
    ranks = [RankState(rank, LOADING if rank == 3 else ALL_REDUCE) for rank in range(5)]

    assert told(ranks) == "rank 3 stands in train.py:88 (DataLoader); ranks 0 to 2 and 4 wait for it in all_reduce"


def test_a_worker_of_a_loader_is_said() -> None:
    worker = in_call(("/me/data.py", 5, "__getitem__"))

    assert told([RankState(0, LOADING, workers=[worker])]) == (
        "it stands in train.py:88 (DataLoader, whose worker pid 7 stands in data.py:5)"
    )


def test_ranks_that_all_wait_are_compared() -> None:
    ranks = [RankState(0, ALL_REDUCE, count=9), RankState(1, ALL_REDUCE, count=8), RankState(2, ALL_REDUCE, count=9)]

    assert told(ranks) == "ranks 0 to 2 wait for each other in all_reduce; rank 1 is behind the others"


def test_a_rank_that_loops_is_named_with_the_function_in_which_it_always_is() -> None:
    """It is at several lines of it, and of what it calls."""
    looks = [
        in_call(("/me/train.py", 41, "search"), ("/me/train.py", 90, "<module>")),
        in_call(("/v/numpy.py", 3, "dot"), ("/me/train.py", 44, "search"), ("/me/train.py", 90, "<module>")),
    ]

    state = common_state(looks)

    assert state is not None
    assert told([RankState(0, state), RankState(1, ALL_REDUCE)]) == (
        "rank 0 loops in train.py:41 search(); rank 1 waits for it in all_reduce"
    )
    assert common_state([looks[0], looks[0]]) == looks[0]
    assert common_state([looks[0], ProcessState(7, state="does not answer")]) is None


def test_who_is_at_work_for_three_times_the_longest_bound_is_overdue() -> None:
    """To be seen at work is no sign in this respect, and who says that it validates has the time that it takes."""
    seen = pulse([float(number) for number in range(1, 10)])
    seen.excuse(5000.0)

    assert not seen.is_overdue(9 + 3 * 3600.0)
    assert seen.is_overdue(10 + 3 * 3600.0)
    seen.see(6000.0, 9, 9.0, busy_since=5500.0)
    assert not seen.is_overdue(10 + 3 * 3600.0)


def test_ranks_are_compared_by_their_collective_calls() -> None:
    """All stand in the same line, as while they wait for a GPU; the recorder of torch knows who has not come."""
    place = in_call(("/me/train.py", 90, "<module>"))
    last, next_one = LastCollective(41, "all_reduce"), LastCollective(42, "broadcast")

    def ranks(states: list[ProcessState]) -> list[RankState]:
        calls = [{"nccl 0": next_one}, {"nccl 0": last, "nccl 3": last}, {"nccl 0": next_one}]
        return [RankState(rank, states[rank], calls=calls[rank]) for rank in range(3)]

    assert told(ranks([place, place, place])).endswith(
        "; rank 1 is at collective call 41 (all_reduce), ranks 0 and 2 are at collective call 42 (broadcast)"
    )
    assert told(ranks([ALL_REDUCE, place, ALL_REDUCE])) == (
        "rank 1 stands in train.py:90; ranks 0 and 2 wait for it in all_reduce"
    )


def test_a_rank_answers_questions_until_it_is_closed(tmp_path: Path) -> None:
    """Its thread ends with its training. Nobody waits for a rank that was never there."""
    signs = SignsOfLife(tmp_path, 3)
    signs.start()

    def answers() -> bool:
        collective_calls([tmp_path / "3.signs"], 1.0)
        return (tmp_path / "3.answer").exists()

    wait_for(answers)
    signs.close()

    wait_for(lambda: all(thread.name != "core-sdk-signs" for thread in threading.enumerate()))
    assert collective_calls([tmp_path / "4.signs"], 60.0) == [{}]
