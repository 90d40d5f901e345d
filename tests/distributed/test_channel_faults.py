"""What one rank does to the others: no hang, no wrong object, and everyone is told who it was.

What is no case here: strangers and wrong keys are turned away while a group forms (test_joining.py), since afterwards
nobody listens; in a broadcast only the chief has an object that could not be pickled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Nursery, Outcome, RankGroup, Threads
from parts import needs
from processes import wait_for
from promises import promise

from core_sdk.core import DistributedContext
from core_sdk.errors import CollectiveTimeoutError, RankFailedError

CALLS = ["gather", "allgather", "broadcast"]
TRANSPORTS = ["unix", "tcp"]
# By the size of the ballast: a large object does not fit into a socket, so that its sender waits for the receiver.
WAYS = {"unix": 500, "tcp": 500, "unix, large": 10_000}
# Long enough to be no reason for anything that these tests see.
PATIENCE_S = 30.0
NAMED_WITHIN_S = 2.0
LATE_AFTER_S = 1.0
# The time-out, and then the question to all ranks how they are.
FOUND_LATE_WITHIN_S = LATE_AFTER_S + 5.0

MISCHIEF = """
    import sys, time
    from rank_script import arguments, join, misbehave, rank, tell

    fault = arguments["fault"] if rank == arguments["culprit"] else None
    distributed = join()
    call = getattr(distributed, arguments["call"])
    another_call = distributed.gather if arguments["call"] == "allgather" else distributed.allgather
    ballast = arguments["num_words"] * "a chief that waits for nobody fills the connections, and then it waits"
    expected = {
        "gather": lambda number: [[other, number, ballast] for other in range(3)] if rank == 0 else None,
        "allgather": lambda number: [[other, number, ballast] for other in range(3)],
        "broadcast": lambda number: [0, number, ballast],
    }[arguments["call"]]
    number = 0
    while True:
        number += 1
        if number == 3 and fault is not None:
            tell("mischief")
        if number >= 3 and fault is not None:
            misbehave(fault)
            if fault == "is slow":
                time.sleep(3.0)
            elif fault == "leaves":
                distributed.close()
                sys.exit()
            elif fault == "makes another call":
                another_call([rank, number, ballast])
        result = call([rank, number, ballast])
        assert result == expected(number), f"a wrong object in call {number}: {str(result)[:200]}"
"""

FAULTS = {
    "is killed": "RankDiedError",
    "exits": "RankDiedError",
    "leaves": "RankLeftError",
    "makes another call": "ChannelError",
    "sends garbage": "RankDiedError",
    "hangs up": "RankDiedError",
}
LATE = ["is stopped", "is slow"]


class Cell(NamedTuple):
    fault: str
    call: str
    culprit: int
    way: str


@dataclass(frozen=True)
class Played:
    """The outcomes of the ranks that did nothing wrong."""

    others: dict[int, Outcome]
    began_at: float

    def errors(self) -> set[str | None]:
        return {outcome.error for outcome in self.others.values()}

    def lasted_s(self) -> float:
        return max(outcome.ended_at for outcome in self.others.values()) - self.began_at


@pytest.fixture(scope="module")
def play(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Cell, float], Played]]:
    """Lets one rank do its mischief; late ones with all calls and ways at once, since they are waited for."""
    folder = tmp_path_factory.mktemp("mischief")
    played: dict[Cell, Played] = {}

    def start(cell: Cell, timeout_s: float) -> RankGroup:
        arguments = {"fault": cell.fault, "call": cell.call, "culprit": cell.culprit, "num_words": WAYS[cell.way]}
        force_tcp = cell.way == "tcp"
        return nursery.start(folder, MISCHIEF, arguments=arguments, force_tcp=force_tcp, timeout_s=timeout_s)

    def watch(cell: Cell, ranks: RankGroup) -> Played:
        others = ranks.outcomes(without=[cell.culprit])
        return Played(others, began_at=ranks[cell.culprit].time_of("mischief"))

    def play_cell(cell: Cell, timeout_s: float) -> Played:
        if cell.fault not in LATE:
            return watch(cell, start(cell, timeout_s))
        if cell not in played:
            cells = [cell._replace(call=call, way=way) for call in CALLS for way in WAYS]
            groups = [start(each, timeout_s) for each in cells]
            played.update({each: watch(each, group) for each, group in zip(cells, groups, strict=True)})
        return played[cell]

    yield play_cell
    nursery.end_all()


@promise("dead-rank-named")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_other_rank_is_told_at_once_who_it_was(
    play: Callable[[Cell, float], Played], fault: str, call: str, culprit: int, way: str
) -> None:
    """Within two seconds every other rank raises an error that names the faulty rank."""
    played = play(Cell(fault, call, culprit, way), PATIENCE_S)

    assert played.errors() == {FAULTS[fault]}, played.others
    assert all(f"rank {culprit} " in outcome.text for outcome in played.others.values()), played.others
    assert played.lasted_s() < NAMED_WITHIN_S


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("culprit", [0, 1, 2], ids=["the chief", "a member", "the last"])
@pytest.mark.parametrize("fault", LATE)
def test_every_other_rank_is_told_in_time_who_is_late(
    play: Callable[[Cell, float], Played], fault: str, call: str, culprit: int, way: str
) -> None:
    """Soon after the timeout every other rank raises an error that names only the late rank."""
    played = play(Cell(fault, call, culprit, way), LATE_AFTER_S)

    assert played.errors() == {"CollectiveTimeoutError"}, played.others
    waited = f"waited {LATE_AFTER_S:g} s for rank {culprit}: "
    assert all(waited in outcome.text for outcome in played.others.values()), played.others
    assert played.lasted_s() < FOUND_LATE_WITHIN_S


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("culprit", [1, 2])
def test_a_death_is_told_to_ranks_that_wait_while_the_chief_computes(
    start_ranks: StartRanks, culprit: int, transport: str
) -> None:
    """While the chief computes, waiting ranks learn of a death at once, and the chief at its next call."""
    ranks = start_ranks(
        """
        import signal, os
        from rank_script import arguments, await_mark, join, mark, rank, tell

        distributed = join()
        if rank == 0:
            await_mark("told")
        elif rank == arguments["culprit"]:
            await_mark("waiting")
            tell("mischief")
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            mark("waiting")
        distributed.allgather(rank)
        """,
        arguments={"culprit": culprit},
        force_tcp=transport == "tcp",
    )
    witness = ranks[3 - culprit].outcome()
    ranks.mark("told")
    chief = ranks[0].outcome()

    assert (witness.error, chief.error) == ("RankDiedError", "RankDiedError")
    assert f"rank {culprit} (process {ranks[culprit].pid} on " in witness.text
    assert f"rank {culprit} (process {ranks[culprit].pid} on " in chief.text
    assert witness.ended_at - ranks[culprit].time_of("mischief") < NAMED_WITHIN_S


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_death_between_calls_is_an_error_at_the_next_call(start_ranks: StartRanks, transport: str) -> None:
    """The death of a rank between two calls is an error of the next call, even of a broadcast."""
    ranks = start_ranks(
        """
        import os
        from rank_script import arguments, await_mark, join, mark, rank, tell

        distributed = join()
        distributed.allgather(rank)
        if rank == arguments["culprit"]:
            os._exit(3)
        await_mark("dead")
        for _ in range(1000):
            distributed.broadcast(rank)
        """,
        arguments={"culprit": 0},
        force_tcp=transport == "tcp",
    )
    ranks[0].outcome()
    ranks.mark("dead")

    assert [ranks[rank].outcome().error for rank in (1, 2)] == ["RankDiedError", "RankDiedError"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
@pytest.mark.parametrize("call", ["gather", "allgather", "broadcast"])
def test_what_one_rank_cannot_pickle_fails_on_all_and_the_next_call_works(
    threads: Threads, call: str, culprit: int, transport: str
) -> None:
    """An object that cannot be pickled raises on its rank and fails the others; the next call works."""

    def script(distributed: DistributedContext) -> tuple[type[BaseException] | None, list[int]]:
        thing: object = threading.Lock() if distributed.rank == culprit else "a string"
        try:
            getattr(distributed, call)(thing)
            kind = None
        except (TypeError, RankFailedError) as error:
            kind = type(error)
            assert culprit == distributed.rank or f"rank {culprit} failed: TypeError: cannot pickle" in str(error)
        return kind, distributed.allgather(distributed.rank)

    results = threads.run(3, script, force_tcp=transport == "tcp")

    kinds = [TypeError if rank == culprit else RankFailedError for rank in range(3)]
    is_unharmed = (call, culprit == 0) in (("broadcast", False), ("gather", True))
    assert results == [(None if is_unharmed else kinds[rank], [0, 1, 2]) for rank in range(3)]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("call", CALLS)
def test_a_rank_that_is_slow_but_in_time_harms_nothing(threads: Threads, call: str, transport: str) -> None:
    """A slow rank that is within the timeout gets and gives the right objects."""

    def script(distributed: DistributedContext) -> list[object]:
        results = []
        for number in range(6):
            if distributed.rank == number % 3:
                time.sleep(0.2)
            results.append(getattr(distributed, call)([distributed.rank, number]))
        return results

    results = threads.run(3, script, force_tcp=transport == "tcp", timeout_s=PATIENCE_S)

    everything = [[[rank, number] for rank in range(3)] for number in range(6)]
    expected = {
        "gather": [everything, [None] * 6, [None] * 6],
        "allgather": [everything] * 3,
        "broadcast": [[[0, number] for number in range(6)]] * 3,
    }
    assert results == expected[call]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
@pytest.mark.parametrize(
    "fault", ["is killed", "exits", "is stopped", "is slow", "sends garbage", "hangs up", "never closes", "fails"]
)
def test_closing_waits_for_nobody(start_ranks: StartRanks, fault: str, culprit: int, transport: str) -> None:
    """close() does not wait for other ranks and raises no error, whatever they do."""
    ranks = start_ranks(
        """
        import threading, time
        from rank_script import arguments, await_mark, join, mark, misbehave, rank, tell

        class Unpicklable(Exception):
            def __init__(self, lock):
                self.lock = lock

        fault = arguments["fault"] if rank == arguments["culprit"] else None
        distributed = join()
        distributed.allgather(rank)
        if fault is not None:
            mark("mischief")
            misbehave(fault)
        if fault == "is slow":
            await_mark("all the others have closed")
        elif fault == "never closes":
            distributed = None
        elif fault == "fails":
            distributed.close(Unpicklable(threading.Lock()))
        else:
            await_mark("mischief")
        if distributed is not None:
            began_at = time.monotonic()
            distributed.close()
            tell(time.monotonic() - began_at)
        """,
        arguments={"fault": fault, "culprit": culprit},
        force_tcp=transport == "tcp",
    )

    others = ranks.outcomes(without=[culprit])
    ranks.mark("all the others have closed")

    assert [(outcome.error, outcome.status) for outcome in others.values()] == [(None, 0)] * 2
    assert all(outcome.values[0] < 1.0 for outcome in others.values())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_everyone_names_the_same_rank_when_all_lose_patience_at_once(threads: Threads, transport: str) -> None:
    """If all ranks time out at once, they all name the same late rank."""

    def script(distributed: DistributedContext) -> tuple[int, ...]:
        distributed.allgather(None)
        if distributed.rank == 3:
            time.sleep(1.5)
        try:
            distributed.allgather(None)
        except CollectiveTimeoutError as error:
            return error.missing
        return ()

    for _ in range(3):
        assert threads.run(5, script, force_tcp=transport == "tcp", timeout_s=0.5) == [(3,)] * 5


@pytest.fixture
def two_hosts() -> Iterator[TwoHosts]:
    """Two network namespaces with a cable between them, for as long as the test holds them."""
    holders = [subprocess.Popen(["unshare", "--net", "sleep", "600"]) for _ in range(2)]
    hosts = TwoHosts(*(holder.pid for holder in holders))
    try:
        hosts.connect()
        yield hosts
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


class TwoHosts:
    ADDRESSES = ("10.213.77.1", "10.213.77.2")

    def __init__(self, *pids: int) -> None:
        self._pids = pids

    def connect(self) -> None:
        own = Path("/proc/self/ns/net").readlink()
        wait_for(lambda: all(Path(f"/proc/{pid}/ns/net").readlink() != own for pid in self._pids))
        self.run(0, "ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(self._pids[1]))
        for host, address in enumerate(self.ADDRESSES):
            self.run(host, "ip", "address", "add", f"{address}/24", "dev", "cable")
            self.run(host, "ip", "link", "set", "cable", "up")

    def cut(self) -> None:
        """Cuts the second host off without ending its connections."""
        self.run(1, "ip", "link", "set", "cable", "down")

    def run(self, host: int, *command: str) -> None:
        subprocess.run(self.on(host, *command), check=True)

    def on(self, host: int, *command: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._pids[host]}/ns/net", *command]


@needs("hosts")
@pytest.mark.parametrize("call", CALLS)
def test_a_host_that_vanishes_is_given_up(two_hosts: TwoHosts, tmp_path: Path, call: str) -> None:
    """A host that is cut off is given up, although its connections do not end."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import pathlib, sys, time
            from core_sdk.core import DistributedContext

            rank, call = int(sys.argv[1]), sys.argv[2]
            distributed = DistributedContext(
                rank=rank, size=2, local_rank=0, local_size=1, cross_rank=rank, cross_size=2,
                rendezvous="tcp://10.213.77.1:7777",
            )
            distributed.allgather(rank)
            if rank == 1:
                pathlib.Path("joined").touch()
                time.sleep(600)
            while True:
                getattr(distributed, call)(bytes(1_000_000))
            """
        )
    )
    variables = os.environ | {"CORE_SDK_CHANNEL_KEY": "a key that every rank was given"}
    ranks = [
        subprocess.Popen(
            two_hosts.on(rank, sys.executable, str(script), str(rank), call),
            cwd=tmp_path,
            env=variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    wait_for((tmp_path / "joined").exists)
    two_hosts.cut()
    began_at = time.monotonic()

    _, errors = ranks[0].communicate(timeout=100)
    named_after_s = time.monotonic() - began_at
    ranks[1].kill()
    ranks[1].communicate()

    assert "core_sdk.errors.RankDiedError: rank 1 (process " in errors
    assert named_after_s < 50
