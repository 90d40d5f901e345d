"""Objects that are larger than what a connection carries: they arrive whole, and a death in the middle is named."""

from __future__ import annotations

import random
import threading

import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Threads

from core_sdk.core import DistributedContext

LARGE = 800_000


def exchange(distributed: DistributedContext) -> list[object]:
    mine = bytes([distributed.rank]) * (LARGE + distributed.rank)
    return [
        distributed.allgather(mine),
        distributed.gather(mine),
        distributed.broadcast(mine),
        distributed.allgather(mine if distributed.rank == 1 else "small"),
        distributed.allgather_local(mine),
    ]


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_every_rank_gets_large_objects(
    threads: Threads, num_nodes: int, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large objects arrive unchanged on the sender's node and on other nodes."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", "a key that all of them know")
    results = threads.run(4, exchange, num_nodes=num_nodes, **meeting(num_nodes, free_port))

    everything = [bytes([rank]) * (LARGE + rank) for rank in range(4)]
    node = 4 // num_nodes
    for rank, result in enumerate(results):
        mixed = ["small", everything[1], "small", "small"]
        local = everything[rank // node * node :][:node]
        assert result == [everything, everything if rank == 0 else None, everything[0], mixed, local]


def meeting(num_nodes: int, port: int) -> dict[str, object]:
    return {} if num_nodes == 1 else {"rendezvous": f"tcp://127.0.0.1:{port}"}


def test_an_object_of_100_mb_arrives_whole(threads: Threads) -> None:
    """An object of 100 MB of a member and one of the chief arrive whole at the other rank."""
    content = random.Random(0).randbytes(100_000_000)

    def script(distributed: DistributedContext) -> list[bool]:
        gathered = distributed.allgather(content if distributed.rank == 1 else None)
        return [
            gathered == [None, content],
            distributed.broadcast(content if distributed.is_chief else None) == content,
        ]

    assert threads.run(2, script) == [[True, True]] * 2


def test_a_rank_that_is_late_keeps_no_other_one_waiting(threads: Threads) -> None:
    """The chief sends a large object to all ranks at once: rank 2 gets it before rank 1 has called."""
    content = bytes(50_000_000)
    has_arrived = threading.Event()

    def script(distributed: DistributedContext) -> bool:
        if distributed.rank == 1:
            assert has_arrived.wait(30)
        is_whole = distributed.broadcast(content if distributed.is_chief else None) == content
        if distributed.rank == 2:
            has_arrived.set()
        return is_whole

    assert threads.run(3, script) == [True] * 3


DYING = """
    import os
    import signal
    import sys
    import threading
    import time
    from core_sdk.errors import RankDiedError
    from rank_script import await_mark, join, mark, rank, tell

    distributed = join()
    if rank == 1:
        call = threading.Thread(target=distributed.allgather, args=(bytes(100_000_000),), daemon=True)
        call.start()
        while sys._current_frames()[call.ident].f_code.co_name != "_wait_to_send":
            time.sleep(0.001)
        mark("rank 1 has sent a part")
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        await_mark("rank 1 has sent a part")
    try:
        distributed.allgather(None)
    except RankDiedError as error:
        tell(error.rank)
"""


def test_a_rank_that_dies_within_a_large_object_is_named(start_ranks: StartRanks) -> None:
    """If a rank is killed while it sends 100 MB, the calls of the other ranks fail, and name it."""
    outcomes = start_ranks(DYING, 3).outcomes(without=[1])

    assert [outcomes[rank].values for rank in (0, 2)] == [[1], [1]]


IN_ANY_ORDER = """
    import random
    import time
    from rank_script import arguments, join, rank, tell

    size, num_bytes = arguments["size"], arguments["num_bytes"]
    shared, own = random.Random(arguments["seed"]), random.Random(rank)


    def expected(name, contents):
        if name == "broadcast":
            return contents[0]
        return contents if name == "allgather" or rank == 0 else None


    with join() as distributed:
        for number in range(1000):
            name = shared.choice(["allgather", "gather", "broadcast", "broadcast", "broadcast"])
            contents = [[other, number, bytes([other]) * shared.choice(num_bytes)] for other in range(size)]
            time.sleep(own.choice([0, 0, 0, 0.002]))  # some rank is late in every call
            result = getattr(distributed, name)(contents[rank])
            assert result == expected(name, contents), f"a wrong object in call {number}, a {name}"
    tell("all is well")
"""


@pytest.mark.parametrize("size", [2, 4])
def test_objects_of_any_size_come_whole_in_calls_of_any_order(start_ranks: StartRanks, size: int) -> None:
    """Objects of any size arrive whole in any order of calls, even if some ranks are ahead."""
    sizes = [0, 100, 30_000, 40_000, 200_000, LARGE]

    group = start_ranks(IN_ANY_ORDER, size, arguments={"size": size, "num_bytes": sizes, "seed": size}, timeout_s=20.0)

    assert all(outcome.values == ["all is well"] for outcome in group.outcomes().values()), group.outcomes()
