"""As many ranks as a large machine has, as many nodes as a small cluster, and crowds of strangers before the door."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Threads, place
from distributed.strangers import Chief
from processes import TIMEOUT_S, wait_for

from core_sdk.core import DistributedContext

SIZE = 64
SHAPES = pytest.mark.parametrize("num_nodes", [1, 16], ids=["64 ranks", "16 nodes of 4"])


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, free_port: int) -> int:
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", "a key that all of them know")
    return free_port


def meeting(num_nodes: int, port: int) -> dict[str, str]:
    return {} if num_nodes == 1 else {"rendezvous": f"tcp://127.0.0.1:{port}"}


@SHAPES
def test_collectives_of_64_ranks_give_each_what_it_is_due(threads: Threads, num_nodes: int, port: int) -> None:
    """Collectives of 64 ranks give the right results on one node and on 16 nodes."""

    def script(distributed: DistributedContext) -> list[object]:
        rank = distributed.rank
        large = distributed.allgather(bytes([rank]) * 300_000 if rank % 16 == 0 else b"")
        return [
            distributed.allgather(rank),
            distributed.gather(rank),
            distributed.broadcast(rank),
            distributed.allgather_local(rank),
            [len(content) for content in large],
            {content[:1] for content in large if content},
        ]

    results = threads.run(SIZE, script, num_nodes=num_nodes, **meeting(num_nodes, port))

    everyone, per_node = list(range(SIZE)), SIZE // num_nodes
    for rank, result in enumerate(results):
        node = everyone[rank // per_node * per_node :][:per_node]
        lengths = [0 if other % 16 else 300_000 for other in everyone]
        firsts = {bytes([other]) for other in (0, 16, 32, 48)}
        assert result == [everyone, everyone if rank == 0 else None, 0, node, lengths, firsts]


HOSTING = """
    import threading

    from core_sdk.errors import RankDiedError
    from rank_script import arguments, join, mark, rank, tell

    def run(number):
        per_node = arguments["per_node"]
        numbers = {"rank": number, "local_rank": number % per_node, "cross_rank": number // per_node}
        shape = {"size": 64, "local_size": per_node, "cross_size": 64 // per_node}
        with join(**numbers, **shape) as distributed:
            distributed.allgather(None)
            mark(f"{number} has joined")
            if number == 63:
                threading.Event().wait()
            try:
                distributed.allgather(None)
            except RankDiedError as error:
                tell(error.rank)

    ranks = [threading.Thread(target=run, args=(number,)) for number in arguments["ranks"][rank]]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
"""


@SHAPES
def test_a_dead_one_of_64_ranks_is_named_on_all_others(start_ranks: StartRanks, num_nodes: int, port: int) -> None:
    """When one of 64 ranks is killed, all others name it."""
    ranks = [list(range(32)), list(range(32, 63)), [63]]
    arguments = {"per_node": SIZE // num_nodes, "ranks": ranks}
    # 63 threads share two interpreters: on a busy machine they may take a minute to join.
    group = start_ranks(HOSTING, 3, arguments=arguments, join_timeout_s=2 * TIMEOUT_S, **meeting(num_nodes, port))
    group.await_all([f"{number} has joined" for number in range(SIZE)])

    group[2].kill()
    outcomes = group.outcomes(without=[2])

    assert [value for outcome in outcomes.values() for value in outcome.values] == [63] * 63


def say_nothing(_connection: socket.socket) -> None:
    """Stays silent as long as it may."""


def send_garbage(connection: socket.socket) -> None:
    connection.sendall(b"\xff" * 200)


def trickle(connection: socket.socket) -> None:
    for _ in range(3):
        connection.sendall(b"x")


def hang_up(connection: socket.socket) -> None:
    connection.close()


BEHAVIOURS: tuple[Callable[[socket.socket], None], ...] = (say_nothing, send_garbage, trickle, hang_up)


class Crowd:
    """Strangers that connect as fast as they can."""

    def __init__(self, chief: Chief, num_strangers: int, most_open: int = 400) -> None:
        self.num_done = 0
        self._chief = chief
        self._open: list[socket.socket] = []
        self._most_open = most_open
        self._num_strangers = num_strangers

    def come(self) -> None:
        for number in range(self._num_strangers):
            with contextlib.suppress(OSError):
                connection = self._chief.connect()
                self._open.append(connection)
                BEHAVIOURS[number % len(BEHAVIOURS)](connection)
            self.num_done += 1
            if len(self._open) > self._most_open:
                self._open.pop(0).close()

    def go(self) -> None:
        for connection in self._open:
            connection.close()


@contextlib.contextmanager
def crowd(chief: Chief, num_strangers: int) -> Iterator[Crowd]:
    """Runs a crowd of strangers during the block."""
    coming = Crowd(chief, num_strangers)
    thread = threading.Thread(target=coming.come)
    thread.start()
    try:
        yield coming
    finally:
        thread.join()
        coming.go()


COUNTS = pytest.mark.parametrize("num_strangers", [1_000, 10_000])
TRANSPORTS = pytest.mark.parametrize("force_tcp", [False, True], ids=["unix", "tcp"])


@COUNTS
@TRANSPORTS
def test_ranks_get_in_behind_a_crowd_of_strangers(start_ranks: StartRanks, num_strangers: int, force_tcp: bool) -> None:
    """Ranks join despite a crowd of strangers, and the chief needs few descriptors and little memory."""
    source = """
    from rank_script import join, rank, tell

    with join() as distributed:
        tell(distributed.allgather(rank))
    """
    chief = start_ranks(source, 4, ranks=[0], force_tcp=force_tcp)
    before_bytes = memory_bytes(chief[0].pid)
    most_descriptors = 0

    with crowd(Chief(chief.meeting), num_strangers) as coming:
        wait_for(lambda: coming.num_done >= num_strangers // 2)
        most_descriptors = len(list(Path(f"/proc/{chief[0].pid}/fd").iterdir()))
        grown_bytes = memory_bytes(chief[0].pid) - before_bytes
        began = time.monotonic()
        members = start_ranks(source, 4, ranks=[1, 2, 3], rendezvous=chief.meeting, force_tcp=force_tcp)
        outcomes = chief.outcomes() | members.outcomes()
        took_s = time.monotonic() - began

    assert [outcome.values for outcome in outcomes.values()] == [[[0, 1, 2, 3]]] * 4
    assert took_s < 15
    assert most_descriptors < 400
    assert grown_bytes < 50_000_000


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@TRANSPORTS
def test_strangers_find_nobody_while_the_ranks_work(threads: Threads, force_tcp: bool) -> None:
    """After all ranks have joined, the chief no longer listens, and strangers do not disturb the calls."""
    terms = threads.terms(force_tcp=force_tcp)

    def script(rank: int) -> DistributedContext:
        return DistributedContext(**place(rank, 2), **terms)

    with ThreadPoolExecutor() as executor:
        first: Future[DistributedContext] = executor.submit(script, 0)
        chief = Chief(terms["rendezvous"])
        ranks = [first, executor.submit(script, 1)]
        joined = [rank.result(TIMEOUT_S) for rank in ranks]

        for _ in range(100):
            with pytest.raises(OSError, match=r"refused|No such file"):
                chief.connect()
        gathered = list(executor.map(lambda each: each.allgather(each.rank), joined))

    assert gathered == [[0, 1]] * 2
    for each in joined:
        each.close()
