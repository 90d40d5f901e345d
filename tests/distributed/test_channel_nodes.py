"""The ranks' channel between hosts: no hang and no wrong object, whatever one rank, one host or one cable does.

The matrix is every call, on two hosts of two ranks and on three of one, with every fault of a rank and of a host. By
default a sample of it is tested; `pytest -m slow` tests all of it, three times.
"""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import time
from collections.abc import Sequence

import pytest
from distributed.cells import (
    A_FEW_PACKETS,
    GIVEN_UP_WITHIN_S,
    LARGE,
    LAYOUTS,
    RUNS,
    THREE_BY_ONE,
    TWO_BY_TWO,
    Cell,
    Layout,
    Stage,
    for_each,
    sampled,
    told,
)
from distributed.ranks import Outcome, RankGroup
from parts import needs

from core_sdk._distributed.transport._connection import _TCP_RTO_MAX_MS

pytestmark = needs("hosts")

CALLS = ["gather", "allgather", "broadcast", "local", "background"]
NAMED_WITHIN_S = 10.0
LATE_AFTER_S = 2.0
# The time-out, and then the question to all ranks how they are.
FOUND_LATE_WITHIN_S = LATE_AFTER_S + 6.0


# What the ranks share: `rounds` calls for ever, and is sure of each result.
PLAYING = """
import os, sys, threading, time
from pathlib import Path
from rank_script import _folder, arguments, await_mark, join, mark, misbehave, rank, tell

size, per_host = arguments["size"], arguments["ranks_per_host"]
ballast = arguments["num_bytes"] * "x"
node = [other for other in range(size) if other // per_host == rank // per_host]
is_local = arguments["call"] == "local"
expected = {
    "gather": lambda number: [[other, number, ballast] for other in range(size)] if rank == 0 else None,
    "allgather": lambda number: [[other, number, ballast] for other in range(size)],
    "background": lambda number: [[other, number, ballast] for other in range(size)],
    "broadcast": lambda number: [0, number, ballast],
    "local": lambda number: [[other, number, ballast] for other in node],
}[arguments["call"]]


def call_of(distributed):
    if arguments["call"] == "background":
        return distributed.background_channel().allgather
    return distributed.allgather_local if is_local else getattr(distributed, arguments["call"])


def another_call_of(distributed):
    if arguments["call"] == "background":
        return distributed.background_channel().gather
    if is_local:
        return distributed.gather_local
    return distributed.gather if arguments["call"] == "allgather" else distributed.allgather


def check(result, number):
    assert result == expected(number), f"a wrong object in call {number}: {str(result)[:200]}"
"""

MISCHIEF = (
    PLAYING
    + """
fault = arguments["fault"] if rank == arguments["culprit"] else None
with join() as distributed:
    call = call_of(distributed)
    another_call = another_call_of(distributed)
    number = 0
    while number < arguments["num_rounds"]:
        number += 1
        if number == 3 and fault is not None:
            tell("mischief")
        if number >= 3 and fault is not None:
            misbehave(fault)
            if fault == "is too slow":
                time.sleep(9.0)
            elif fault == "is slow":
                time.sleep(0.2)
            elif fault == "leaves":
                distributed.close()
                sys.exit()
            elif fault == "raises":
                raise ValueError("mischief")
            elif fault == "makes another call":
                another_call([rank, number, ballast])
            elif fault == "cannot pickle":
                fault = None
                try:
                    call(threading.Lock())
                except TypeError as error:
                    tell(str(error)[:18])
                continue
        try:
            result = call([rank, number, ballast])
        except Exception as error:
            if arguments["fault"] != "cannot pickle":
                raise
            tell(type(error).__name__ + str(error)[:40])
            continue
        check(result, number)
        if is_local:
            assert distributed.allgather([rank, number]) == [[other, number] for other in range(size)]
    tell("all is well")
"""
)

STEADY = (
    PLAYING
    + """
distributed = join()
call = call_of(distributed)
number = 0
while True:
    number += 1
    if number == 3:
        mark(f"rank {rank} plays")
    if number > 3 and rank in arguments["idle"]:
        await_mark("for ever")
    check(call([rank, number, ballast]), number)
    if distributed.broadcast(rank == 0 and (_folder / "enough").exists()):
        break
    time.sleep(0.005)
tell(number)
distributed.close()
tell("all is well")
"""
)

AT_ONCE = {
    "is killed": "RankDiedError",
    "exits": "RankDiedError",
    "leaves": "RankLeftError",
    "raises": "RankFailedError",
    "makes another call": "ChannelError",
    "sends garbage": "RankDiedError",
    "hangs up": "RankDiedError",
}
CULPRITS = [(TWO_BY_TWO, 0), (TWO_BY_TWO, 1), (TWO_BY_TWO, 3), (THREE_BY_ONE, 0), (THREE_BY_ONE, 2)]
RANK_CELLS = [
    Cell(call, layout, culprit)
    for layout, culprit in CULPRITS
    for call in CALLS
    if not (call == "local" and layout.ranks_per_host == 1)  # nobody else is there
]
HOST_CELLS = [Cell(call, layout, host) for layout in LAYOUTS for host in (0, layout.num_hosts - 1) for call in CALLS]
IDLE_CELLS = [cell._replace(host_is_idle=True) for cell in HOST_CELLS if cell.call in ("allgather", "broadcast")]
LOSSY_CELLS = [cell._replace(num_bytes=A_FEW_PACKETS) for cell in HOST_CELLS]
LARGE_CELLS = [cell._replace(num_bytes=LARGE) for cell in HOST_CELLS if cell.call in ("gather", "broadcast")]


def faulty(fault: str, num_rounds: int = 1_000_000) -> dict[str, object]:
    """Returns the arguments for a culprit that misbehaves in its third round."""
    return {"fault": fault, "num_rounds": num_rounds}


@pytest.mark.parametrize("fault", AT_ONCE)
@sampled("cells", [Cell("local", TWO_BY_TWO, 3)], RANK_CELLS)
def test_every_other_rank_is_told_at_once_who_it_was(stage: Stage, fault: str, cells: Sequence[Cell]) -> None:
    """Wherever it runs, the faulty rank is named by every other rank's error at once."""

    def check(cell: Cell) -> None:
        with stage.set_up(MISCHIEF, cell, arguments=faulty(fault)) as (_, ranks):
            others = ranks.outcomes(without=[cell.culprit])
            began_at = ranks[cell.culprit].time_of("mischief")

        for outcome in others.values():
            assert is_error(outcome, AT_ONCE[fault]), others
            assert cell.culprit in told(outcome)[1], others
        assert max(outcome.ended_at for outcome in others.values()) - began_at < NAMED_WITHIN_S, others

    for_each(cells, check, at_once=4)


@pytest.mark.parametrize("fault", ["is stopped", "is too slow"])
@sampled("cells", [Cell("allgather", TWO_BY_TWO, 3)], RANK_CELLS)
def test_every_other_rank_is_told_in_time_who_is_late(stage: Stage, fault: str, cells: Sequence[Cell]) -> None:
    """Soon after the time-out, by an error that says how it is; a rank that is late because of it answers."""
    sign = {"is stopped": "does not answer", "is too slow": "answers, and is in none"}[fault]

    def check(cell: Cell) -> None:
        with stage.set_up(MISCHIEF, cell, arguments=faulty(fault), timeout_s=LATE_AFTER_S) as (_, ranks):
            others = ranks.outcomes(without=[cell.culprit])
            began_at = ranks[cell.culprit].time_of("mischief")

        for outcome in others.values():
            assert is_error(outcome, "CollectiveTimeoutError"), others
            assert f"waited {LATE_AFTER_S:g} s for rank" in outcome.text, others
            assert re.search(rf"rank {cell.culprit} \([^)]*\) {sign}", outcome.text), others
            silent = re.findall(r"rank (\d+) \([^)]*\) does not answer", outcome.text)
            assert set(silent) <= {str(cell.culprit)}, others
        assert max(outcome.ended_at for outcome in others.values()) - began_at < FOUND_LATE_WITHIN_S, others

    for_each(cells, check, at_once=5)


@sampled("cells", [Cell("allgather", TWO_BY_TWO, 3)], [cell for cell in RANK_CELLS if cell.call != "local"])
def test_what_one_rank_cannot_pickle_fails_on_all_and_the_next_call_works(stage: Stage, cells: Sequence[Cell]) -> None:
    """An object that cannot be pickled raises on its rank and fails the others; the next call works."""

    def check(cell: Cell) -> None:
        with stage.set_up(MISCHIEF, cell, arguments=faulty("cannot pickle", 6)) as (_, ranks):
            outcomes = ranks.outcomes()

        is_unharmed = (cell.call, cell.culprit == 0) in (("broadcast", False), ("gather", True))
        for rank, outcome in outcomes.items():
            said = [value for value in outcome.values if value != "mischief"]
            own = ["cannot pickle '_th"] if rank == cell.culprit else [f"RankFailedErrorrank {cell.culprit} failed: "]
            assert outcome.error is None, outcomes
            assert said[-1] == "all is well", outcomes
            assert is_unharmed or said[0].startswith(own[0]), outcomes

    for_each(cells, check, at_once=4)


@sampled("cells", [Cell("allgather", TWO_BY_TWO, 3)], RANK_CELLS)
def test_a_rank_that_is_slow_but_in_time_harms_nothing(stage: Stage, cells: Sequence[Cell]) -> None:
    """A slow rank that is within the timeout gets and gives the right objects."""

    def check(cell: Cell) -> None:
        with stage.set_up(MISCHIEF, cell, arguments=faulty("is slow", 6)) as (_, ranks):
            outcomes = ranks.outcomes()

        assert all(outcome.values[-1] == "all is well" for outcome in outcomes.values()), outcomes

    for_each(cells, check, at_once=4)


CROSSED = """
from rank_script import join, rank

with join() as distributed:
    distributed.allgather(rank)
    (distributed.allgather_local if rank == 2 else distributed.allgather)(rank)
    distributed.allgather_local(rank)
"""


def test_ranks_that_wait_for_each_other_in_different_groups_do_not_wait_for_ever(stage: Stage) -> None:
    """No group sees a wrong call: the time-out ends it, and says where everyone is."""
    with stage.set_up(CROSSED, Cell("local", TWO_BY_TWO, 2), timeout_s=LATE_AFTER_S) as (_, ranks):
        outcomes = ranks.outcomes()

    assert all(is_error(outcome, "CollectiveTimeoutError") for outcome in outcomes.values()), outcomes
    assert "for rank 2: " in outcomes[0].text, outcomes


DEAF = """
import os
from rank_script import await_mark, join, mark, rank, tcp_ports, tell

distributed = join()
distributed.allgather(rank)
tell(tcp_ports()[-1])
mark(f"rank {rank} plays")
if rank == 2:
    await_mark("deaf")
    os._exit(7)
try:
    distributed.allgather(rank)
finally:
    mark(f"rank {rank} knows")
"""


@needs("packet loss")
def test_the_reason_may_come_long_after_the_end_of_a_connection(stage: Stage) -> None:
    """The true reason is reported even if it arrives long after the connection has ended."""
    with stage.set_up(DEAF, Cell("allgather", THREE_BY_ONE, 2)) as (hosts, ranks):
        ranks.await_marks("plays")
        (control,) = ranks[1].told()
        hosts[1].run(["iptables", "-A", "INPUT", "-p", "tcp", "--dport", str(control), "-j", "DROP"])
        ranks.mark("deaf")
        ranks.await_mark("rank 0 knows")
        time.sleep(0.8)  # this long all is lost
        hosts[1].lose(percent=0)
        outcomes = ranks.outcomes(without=[2])

    assert [told(outcome) for outcome in outcomes.values()] == [("RankDiedError", [2])] * 2, outcomes


@sampled("cells", [Cell("allgather", TWO_BY_TWO, 1), Cell("broadcast", THREE_BY_ONE, 0)], HOST_CELLS + IDLE_CELLS)
def test_a_host_that_dies_is_named_at_once(stage: Stage, cells: Sequence[Cell]) -> None:
    """When a host dies, all other ranks raise an error that names a rank of it at once."""

    def check(cell: Cell) -> None:
        with stage.set_up(STEADY, cell) as (hosts, ranks):
            ranks.await_marks("plays")
            began_at = time.monotonic()
            hosts[cell.culprit].kill()
            dead = cell.layout.ranks_on(cell.culprit)
            others = ranks.outcomes(without=dead)
            statuses = {ranks[rank].outcome().status for rank in dead}

        assert statuses == {-signal.SIGKILL}
        check_deaths(others, dict.fromkeys(others, dead), began_at, NAMED_WITHIN_S)

    for_each(cells, check, at_once=4)


def is_error(outcome: Outcome, error: str) -> bool:
    """Checks that the error is the failed rank's, or comes from a rank that has left because of it and tells all."""
    return outcome.error == error or (outcome.error == "RankFailedError" and f"{error}: " in outcome.text)


def check_deaths(outcomes: dict[int, Outcome], beyond: dict[int, list[int]], began_at: float, within_s: float) -> None:
    """Checks that each rank reported in time the death of a rank `beyond` its reach."""
    for rank, outcome in outcomes.items():
        assert is_error(outcome, "RankDiedError"), outcomes
        assert set(told(outcome)[1]) & set(beyond[rank]), outcomes
        assert outcome.ended_at - began_at < within_s, outcomes
    print(f"{max(outcome.ended_at for outcome in outcomes.values()) - began_at:.1f} s to the last error")


@pytest.mark.parametrize("then", ["lives", "dies"])
@pytest.mark.parametrize("run", RUNS)
def test_a_host_whose_cable_is_cut_is_given_up_by_all_and_gives_all_up(stage: Stage, run: int, then: str) -> None:
    """Ranks on both sides of a cut cable give each other up within the limit."""

    def check(cell: Cell) -> None:
        with stage.set_up(STEADY, cell) as (hosts, ranks):
            ranks.await_marks("plays")
            began_at = time.monotonic()
            hosts[cell.culprit].cut()
            away = cell.layout.ranks_on(cell.culprit)
            rest = [rank for rank in range(cell.layout.size) if rank not in away]
            if then == "dies":
                hosts[cell.culprit].kill()
            silent = away if then == "dies" or cell.host_is_idle else []
            outcomes = ranks.outcomes(without=silent)

        beyond = {rank: rest if rank in away else away for rank in outcomes}
        if cell.culprit == 0:
            beyond |= {rank: [0] for rank in rest}
        check_deaths(outcomes, beyond, began_at, GIVEN_UP_WITHIN_S)

    cells = HOST_CELLS + IDLE_CELLS + LARGE_CELLS
    for_each(cells, check, at_once=len(cells))


def finish(ranks: RankGroup) -> dict[int, Outcome]:
    """Lets the ranks come to an end, which must be a good one and the same for all."""
    ranks.mark("enough")
    outcomes = ranks.outcomes()
    assert all(outcome.values[1:] == ["all is well"] for outcome in outcomes.values()), outcomes
    assert len({outcome.values[0] for outcome in outcomes.values()}) == 1, outcomes
    return outcomes


@sampled("cells", [Cell("allgather", TWO_BY_TWO, 1)], HOST_CELLS + LARGE_CELLS)
def test_a_cable_that_is_mended_in_time_harms_nothing(
    stage: Stage, cells: Sequence[Cell], request: pytest.FixtureRequest
) -> None:
    """A cable that is repaired in time loses nothing."""
    cut_for_s = 1.0 if "a sample" in request.node.name else 5.0

    def check(cell: Cell) -> None:
        with stage.set_up(STEADY, cell) as (hosts, ranks):
            ranks.await_marks("plays")
            hosts[cell.culprit].cut()
            time.sleep(cut_for_s)  # this long it is cut: nothing tells that it was long enough
            hosts[cell.culprit].mend()
            finish(ranks)

    for_each(cells, check, at_once=7)


@needs("packet loss")
def test_the_ranks_go_on_soon_after_a_time_when_all_was_lost(stage: Stage) -> None:
    """After an outage of any length the ranks go on within seconds."""
    if not can_limit_pauses():
        pytest.skip("NOT TESTED: how soon ranks go on after an outage; it takes Linux 6.15")
    with stage.set_up(STEADY, Cell("allgather", Layout(2, 1), 1)) as (hosts, ranks):
        ranks.await_marks("plays")
        for host in hosts:
            host.lose(percent=100)
        time.sleep(8.0)  # this long all is lost; a connection tries again after 6.2 seconds, then after 12.6
        for host in hosts:
            host.lose(percent=0)
        mended_at = time.monotonic()
        outcomes = finish(ranks)

    assert max(outcome.ended_at for outcome in outcomes.values()) - mended_at < 4.0, outcomes


def can_limit_pauses() -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, 3000)
        return True
    return False


@needs("latency")
@sampled("cells", [Cell("allgather", TWO_BY_TWO, 0)], HOST_CELLS + LARGE_CELLS)
def test_results_are_right_over_slow_cables(stage: Stage, cells: Sequence[Cell]) -> None:
    """Results are right with a latency of twenty milliseconds each way."""

    def check(cell: Cell) -> None:
        with stage.set_up(STEADY, cell, latency_s=0.02) as (_, ranks):
            ranks.await_marks("plays")
            finish(ranks)

    for_each(cells, check, at_once=4)


@needs("packet loss")
@pytest.mark.parametrize("percent", [10, 20])
@sampled("cells", [Cell("allgather", TWO_BY_TWO, 0, A_FEW_PACKETS)], LOSSY_CELLS)
def test_results_are_right_on_lossy_hosts(stage: Stage, cells: Sequence[Cell], percent: int) -> None:
    """Each loses packets of all that come; the ranks also join and close meanwhile."""

    def check(cell: Cell) -> None:
        with stage.set_up(STEADY, cell, loss_percent=percent) as (_, ranks):
            ranks.await_marks("plays")
            finish(ranks)

    for_each(cells, check, at_once=4)
