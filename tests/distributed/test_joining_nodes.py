"""How the ranks of several hosts come together, and leave: no hang, whoever does not come, dies, or is cut off."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from distributed.cells import (
    GIVEN_UP_WITHIN_S,
    PATIENCE_S,
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
from hosts.hosts import host_group
from parts import needs

pytestmark = needs("hosts")

JOIN_TIMEOUT_S = 2.0
NAMED_WITHIN_S = 10.0
CULPRITS = [
    *(Cell("join", TWO_BY_TWO, culprit) for culprit in range(4)),
    *(Cell("join", THREE_BY_ONE, culprit) for culprit in range(3)),
]
# The last rank never comes; what these do is done to the others while they wait for it.
WAITING = [Cell("join", TWO_BY_TWO, 1), Cell("join", TWO_BY_TWO, 2), Cell("join", THREE_BY_ONE, 1)]
WAITING_HOSTS = [Cell("join", layout, host) for layout in (TWO_BY_TWO, THREE_BY_ONE) for host in (0, 1)]

JOIN = """
from rank_script import join, mark_when_waiting, rank, tell

tell("begins")
mark_when_waiting()
with join() as distributed:
    tell(distributed.allgather(rank))
"""


@sampled("cells", [Cell("join", TWO_BY_TWO, 3), Cell("join", THREE_BY_ONE, 0)], CULPRITS)
def test_a_rank_that_never_comes_is_named_by_all(stage: Stage, cells: Sequence[Cell]) -> None:
    """If a rank or the chief never joins, all others fail within the time-out with an error that names it."""

    def check(cell: Cell) -> None:
        others = [rank for rank in range(cell.layout.size) if rank != cell.culprit]
        with stage.set_up(JOIN, cell, only=others, join_timeout_s=JOIN_TIMEOUT_S) as (_, ranks):
            outcomes = ranks.outcomes()
            began_at = max(ranks[rank].time_of("begins") for rank in others)

        error = "RanksMissingError" if cell.culprit else "JoinError"
        assert {outcome.error for outcome in outcomes.values()} == {error}, outcomes
        assert all(cell.culprit in told(outcome)[1] for outcome in outcomes.values()), outcomes
        assert max(outcome.ended_at for outcome in outcomes.values()) - began_at < JOIN_TIMEOUT_S + 7.0, outcomes

    for_each(cells, check, at_once=4)


@sampled("cells", [Cell("join", TWO_BY_TWO, 2)], WAITING)
def test_a_rank_that_dies_while_all_wait_for_another_is_named_at_once(stage: Stage, cells: Sequence[Cell]) -> None:
    """While all wait for another rank, a death is reported at once on every host."""

    def check(cell: Cell) -> None:
        with stage.set_up(JOIN, cell, only=range(cell.layout.size - 1)) as (_, ranks):
            ranks.await_marks("waits")
            died_at = ranks[cell.culprit].kill()
            others = ranks.outcomes(without=[cell.culprit])

        for outcome in others.values():
            assert told(outcome) == ("RankDiedError", [cell.culprit]), others
            assert outcome.ended_at - died_at < NAMED_WITHIN_S, others

    for_each(cells, check)


@sampled("cells", [Cell("join", TWO_BY_TWO, 1)], WAITING_HOSTS)
def test_a_host_that_dies_while_all_wait_for_another_is_named_at_once(stage: Stage, cells: Sequence[Cell]) -> None:
    """While all wait for another rank, the death of a host is reported at once."""

    def check(cell: Cell) -> None:
        dead = cell.layout.ranks_on(cell.culprit)
        with stage.set_up(JOIN, cell, only=range(cell.layout.size - 1)) as (hosts, ranks):
            ranks.await_marks("waits")
            hosts[cell.culprit].kill()
            died_at = time.monotonic()
            others = ranks.outcomes(without=dead)

        for outcome in others.values():
            error, named = told(outcome)
            assert error == ("RankDiedError" if cell.culprit else "JoinError"), others
            assert set(named) & set(dead), others
            assert outcome.ended_at - died_at < NAMED_WITHIN_S, others

    for_each(cells, check)


@pytest.mark.parametrize("run", RUNS)
def test_a_host_that_is_cut_off_while_all_wait_for_another_is_given_up(stage: Stage, run: int) -> None:
    """While ranks join, both sides of a cut cable give each other up long before the timeout."""

    def check(cell: Cell) -> None:
        away = cell.layout.ranks_on(cell.culprit)
        with stage.set_up(JOIN, cell, only=range(cell.layout.size - 1), join_timeout_s=PATIENCE_S) as (hosts, ranks):
            ranks.await_marks("waits")
            hosts[cell.culprit].cut()
            cut_at = time.monotonic()
            outcomes = ranks.outcomes()

        with_chief = [rank for rank in outcomes if (rank in away) == (cell.culprit == 0)]
        for rank, outcome in outcomes.items():
            error, named = told(outcome)
            beyond = set(range(cell.layout.size)) - set(with_chief) if rank in with_chief else {0}
            assert error == ("RankDiedError" if rank in with_chief else "JoinError"), outcomes
            assert set(named) & beyond, outcomes
            assert outcome.ended_at - cut_at < GIVEN_UP_WITHIN_S, outcomes

    for_each(WAITING_HOSTS, check, at_once=len(WAITING_HOSTS))


@sampled("cells", [Cell("join", THREE_BY_ONE, 1)], WAITING_HOSTS)
def test_a_host_whose_cable_is_mended_in_time_joins(stage: Stage, cells: Sequence[Cell]) -> None:
    """A host whose cable is repaired in time joins."""

    def check(cell: Cell) -> None:
        away = cell.layout.ranks_on(cell.culprit)
        source = JOIN.replace("with join()", f"mark('looks')\nif rank in {away}: await_mark('cut')\nwith join()")
        source = source.replace("import join", "import await_mark, join, mark")
        with stage.set_up(source, cell) as (hosts, ranks):
            ranks.await_mark("looks")
            hosts[cell.culprit].cut()
            ranks.mark("cut")
            time.sleep(1.0)  # this long it is cut
            hosts[cell.culprit].mend()
            outcomes = ranks.outcomes()

        everyone = list(range(cell.layout.size))
        assert all(outcome.values[-1] == everyone for outcome in outcomes.values()), outcomes

    for_each(cells, check, at_once=4)


@needs("packet loss")
def test_a_rank_whose_introduction_is_late_joins(stage: Stage) -> None:
    """A rank that has proved the key is waited for, even if its introduction is late."""
    with host_group(2) as hosts:
        hosts[0].run(["iptables", "-A", "INPUT", "-p", "tcp", "-m", "length", "--length", "250:", "-j", "DROP"])
        with stage.set_up_on(hosts, JOIN, Cell("join", Layout(2, 1), 1)) as ranks:
            ranks.await_marks("waits")
            time.sleep(12.0)  # this long it is lost
            hosts[0].lose(percent=0)
            outcomes = ranks.outcomes()

    assert [outcome.values[-1] for outcome in outcomes.values()] == [[0, 1], [0, 1]], outcomes


LAST_WORD = """
import time
from rank_script import await_mark, join, mark, rank, tell

with join(timeout_s=60.0) as distributed:
    distributed.allgather(rank)
    if rank == 0:
        mark("joined")
        await_mark("cut")
        distributed.broadcast("the last word" + 10_000 * "!")
        mark("said")
    else:
        await_mark("said")
        if rank in (2, 3):
            mark("listens")
        tell(distributed.broadcast(None)[:13])
tell("all is well")
"""


@pytest.mark.parametrize("run", RUNS)
def test_what_the_chief_has_said_before_it_left_comes_through_a_mended_cable(stage: Stage, run: int) -> None:
    """A broadcast right before the chief's end arrives after the cable is repaired."""

    def check(cell: Cell) -> None:
        with stage.set_up(LAST_WORD, cell) as (hosts, ranks):
            ranks.await_mark("joined")
            hosts[cell.culprit].cut()
            ranks.mark("cut")
            ranks.await_mark("listens")
            time.sleep(7.0)  # this long it is cut
            hosts[cell.culprit].mend()
            outcomes = ranks.outcomes()

        assert outcomes[0].values == ["all is well"], outcomes
        assert all(outcomes[rank].values == ["the last word", "all is well"] for rank in outcomes if rank), outcomes

    for_each([Cell("close", TWO_BY_TWO, 1), Cell("close", THREE_BY_ONE, 2)], check, at_once=2)


FAREWELL = """
from rank_script import await_mark, join, mark, rank

with join() as distributed:
    distributed.allgather(rank)
    mark(f"rank {rank} plays")
    if rank == 2:
        await_mark("deaf")
        raise ValueError("mischief")
    distributed.allgather(rank)
"""


@needs("packet loss")
@pytest.mark.parametrize("run", RUNS)
def test_the_last_words_of_a_rank_come_through_after_a_time_when_all_was_lost(stage: Stage, run: int) -> None:
    """A rank's last error arrives after an outage, even if its process has ended."""
    with stage.set_up(FAREWELL, Cell("close", THREE_BY_ONE, 2)) as (hosts, ranks):
        ranks.await_marks("plays")
        for host in hosts:
            host.lose(percent=100)
        ranks.mark("deaf")
        ranks[2].outcome()
        time.sleep(8.0)  # this long all is lost
        for host in hosts:
            host.lose(percent=0)
        outcomes = ranks.outcomes(without=[2])

    assert [told(outcome)[0] for outcome in outcomes.values()] == ["RankFailedError"] * 2, outcomes
    assert all("ValueError: mischief" in outcome.text for outcome in outcomes.values()), outcomes


QUIET_END = """
import time
from rank_script import await_mark, join, mark, rank, tcp_ports, tell

with join() as distributed:
    distributed.allgather(rank)
    if rank == 2:
        tell(tcp_ports()[-1])
    mark(f"rank {rank} plays")
    if rank == 0:
        await_mark("deaf")
        distributed.broadcast("the last word")
        await_mark("leaves")
        distributed.channel.tell_all("news", b"that the rank which leaves does not read")
        await_mark("late")
    elif rank == 1:
        await_mark("mended")
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            distributed.channel.check()
            time.sleep(0.01)
        tell(distributed.broadcast(None))
        mark("late")
    else:
        tell(distributed.broadcast(None))
        mark("leaves")
tell("all is well")
"""


@needs("packet loss")
def test_a_rank_that_leaves_well_is_not_thought_dead_because_its_farewell_was_lost(stage: Stage) -> None:
    """A rank that left well is not taken for dead if its farewell is delayed."""
    with stage.set_up(QUIET_END, Cell("close", THREE_BY_ONE, 2)) as (hosts, ranks):
        ranks.await_marks("plays")
        (control,) = ranks[2].told()
        hosts[0].run(["iptables", "-A", "INPUT", "-p", "tcp", "--sport", str(control), "-j", "DROP"])
        ranks.mark("deaf")
        ranks.await_mark("leaves")
        time.sleep(1.0)  # this long its farewell is lost
        hosts[0].lose(percent=0)
        ranks.mark("mended")
        outcomes = ranks.outcomes()

    assert all(outcome.values[-1] == "all is well" for outcome in outcomes.values()), outcomes


@pytest.mark.parametrize("run", RUNS)
def test_ranks_of_three_hosts_meet_through_the_store_of_torch(stage: Stage, run: int) -> None:
    """Ranks on three hosts meet through torch's store on the first host, without a key in the environment."""
    source = """
        import os
        from datetime import timedelta
        from torch.distributed import TCPStore
        from core_sdk.core import DistributedContext
        from rank_script import arguments, mark, rank, tell

        mark(f"rank {rank} waits")
        size = arguments["size"]
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
        place |= {"GROUP_RANK": rank, "GROUP_WORLD_SIZE": size, "MASTER_ADDR": "h1", "MASTER_PORT": 4001}
        del os.environ["CORE_SDK_CHANNEL_KEY"]
        os.environ.update({name: str(value) for name, value in place.items()})
        if rank == 0:
            store = TCPStore("h1", 4001, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        with DistributedContext.from_torch_distributed(join_timeout_s=60.0, timeout_s=60.0) as distributed:
            tell([distributed.allgather(rank), distributed.cross_rank, len(set(distributed.hosts))])
            distributed.allgather("goodbye")
        """
    with stage.set_up(source, Cell("join", THREE_BY_ONE, 0)) as (_, ranks):
        ranks.await_marks("waits")
        outcomes = ranks.outcomes()

    assert {rank: list(outcome.values) for rank, outcome in outcomes.items()} == {
        rank: [[[0, 1, 2], rank, 3]] for rank in range(3)
    }, outcomes
