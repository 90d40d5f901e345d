"""Large objects between the ranks of a node: written once, read by each, and given back whatever happens."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

import pytest
from distributed.conftest import StartRanks
from distributed.memory_files import LARGE, num_descriptors, requires_memory_files
from distributed.ranks import Threads
from parts import needs

from core_sdk.core import DistributedContext
from core_sdk.distributed.transport._memory_file import MIN_BYTES
from core_sdk.errors import RankFailedError, UnreadableObjectError

pytestmark = [requires_memory_files, pytest.mark.usefixtures("nothing_stays_open")]


class Unreadable:
    """A large object that fails when it is unpickled."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _fail, (self.content,)


def _fail(_content: bytes) -> None:
    raise ZeroDivisionError


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


def test_large_objects_leave_no_descriptor_behind(threads: Threads) -> None:
    """Large objects leave no open descriptors, after calls that succeed or fail."""

    def script(distributed: DistributedContext) -> None:
        mine = os.urandom(LARGE)
        for _ in range(5):
            distributed.allgather(mine)
            distributed.broadcast(mine)
            distributed.gather(mine)
        for culprit in (0, 1):
            with contextlib.suppress(RankFailedError, TypeError):
                distributed.allgather([mine, threading.Lock()] if distributed.rank == culprit else mine)
            distributed.allgather(None)
        with contextlib.suppress(UnreadableObjectError):  # the chief keeps its own object
            distributed.broadcast(Unreadable(mine))

    before = num_descriptors()
    for _ in range(3):
        threads.run(3, script)

    assert num_descriptors() == before


def test_large_broadcasts_do_not_pile_up(threads: Threads) -> None:
    """The chief goes on before its object was read, and waits with the next: descriptors take no room in a socket."""
    chief_is_at: list[int] = []
    member_is_at = [0]

    def script(distributed: DistributedContext) -> None:
        for number in range(30):
            distributed.broadcast(os.urandom(LARGE) if distributed.is_chief else None)
            if distributed.is_chief:
                chief_is_at.append(number - member_is_at[0])
            else:
                time.sleep(0.005)
                member_is_at[0] = number

    threads.run(2, script)

    assert max(chief_is_at) <= 3


COUNTING = """
    import os
    from rank_script import await_mark, join, mark, rank, tell

    def num_memory_files():
        names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return sum("memfd:core-sdk" in os.readlink(name) for name in names if os.path.islink(name))
"""

FORKING = (
    COUNTING
    + """
    import threading
    import time

    with join() as distributed:
        if rank == 0:
            call = threading.Thread(target=distributed.allgather, args=(b"x" * 1_000_000,))
            call.start()
            while not len(distributed.channel._files._open):
                time.sleep(0.001)
            child = os.fork()
            if child == 0:
                os._exit(num_memory_files())
            tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            mark("forked")
            call.join()
        else:
            await_mark("forked")
            distributed.allgather(None)
"""
)


def test_a_fork_in_the_middle_of_a_call_does_not_keep_the_memory(start_ranks: StartRanks) -> None:
    """A child that is forked during a call does not keep the memory of large objects."""
    assert start_ranks(FORKING, 2).outcomes()[0].values == [0]


DYING = (
    COUNTING
    + """
    import time
    from core_sdk.errors import RankDiedError

    with join() as distributed:
        if rank == 2:
            mark("joined")
            await_mark("never")
        try:
            distributed.allgather(b"x" * 1_000_000)
        except RankDiedError as error:
            tell(error.rank)
        # The other rank may still send its own until it has failed, too.
        mark(f"rank {rank} has failed")
        await_mark(f"rank {1 - rank} has failed")
        # A thread that was receiving one lets it go a moment later.
        given_back_by = time.monotonic() + 30
        while (num_held := num_memory_files()) and time.monotonic() < given_back_by:
            time.sleep(0.01)
        tell(num_held)
"""
)


def test_large_objects_of_a_call_that_fails_are_given_back(start_ranks: StartRanks) -> None:
    """The memory of large objects is released when a call fails by a rank's death."""
    group = start_ranks(DYING, 3)
    group.await_mark("joined")
    group[2].kill()

    outcomes = group.outcomes(without=[2])

    assert [outcomes[rank].values for rank in (0, 1)] == [[2, 0]] * 2


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


@needs("many processes")
@pytest.mark.parametrize("size", [2, 4])
def test_objects_of_any_size_come_whole_in_calls_of_any_order(start_ranks: StartRanks, size: int) -> None:
    """Objects of any size arrive whole in any order of calls, even if some ranks are ahead."""
    sizes = [0, 100, 60_000, MIN_BYTES - 100, MIN_BYTES, LARGE]

    group = start_ranks(IN_ANY_ORDER, size, arguments={"size": size, "num_bytes": sizes, "seed": size}, timeout_s=20.0)

    assert all(outcome.values == ["all is well"] for outcome in group.outcomes().values()), group.outcomes()
