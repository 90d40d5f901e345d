"""What the collectives give, on one rank and on several, and how a group ends."""

from __future__ import annotations

import gc
import pickle
import random
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Threads, place, together
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import TIMEOUT_S, wait_for

from core_sdk.core import DistributedContext
from core_sdk.errors import ChannelError, RankFailedError, RankLeftError

TRANSPORTS = pytest.mark.parametrize("force_tcp", [False, True], ids=["unix", "tcp"])


OBJECTS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an empty dict": dict,
    "empty bytes": bytes,
    "a small dict": lambda: {"loss": 0.5, "names": ["a", "b"], "nested": {"x": (1, 2)}},
    "3,000 keys": lambda: {f"metric_{number}": number / 3 for number in range(3000)},
    "just more than a chunk": lambda: bytes(range(256)) * 257,
    "20 MB": lambda: random.Random(1).randbytes(20_000_000),
    "an exception": lambda: ValueError("a value like any other"),
}


@TRANSPORTS
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_collectives_give_every_rank_what_it_is_due(threads: Threads, size: int, force_tcp: bool) -> None:
    """Every collective gives all ranks the right objects in rank order."""

    def script(distributed: DistributedContext) -> list[object]:
        mine = f"of rank {distributed.rank}"
        return [
            distributed.gather(mine),
            distributed.allgather(mine),
            distributed.broadcast(mine),
            distributed.gather_local(mine),
            distributed.allgather_local(mine),
            distributed.broadcast_local(mine),
        ]

    results = threads.run(size, script, force_tcp=force_tcp)

    everything = [f"of rank {rank}" for rank in range(size)]
    for rank, result in enumerate(results):
        gathered = everything if rank == 0 else None
        assert result == [gathered, everything, "of rank 0"] * 2


@TRANSPORTS
@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_arrives_as_it_was_sent(threads: Threads, kind: str, force_tcp: bool) -> None:
    """Objects of every kind and size arrive unchanged."""
    sent = OBJECTS[kind]()

    results = threads.run(
        3,
        lambda distributed: (
            distributed.allgather(sent),
            distributed.broadcast(sent if distributed.rank == 0 else None),
        ),
        force_tcp=force_tcp,
    )

    for gathered, broadcast in results:
        assert all(pickle.dumps(each) == pickle.dumps(sent) for each in (*gathered, broadcast))


def test_functions_and_classes_of_the_script_can_be_sent(threads: Threads) -> None:
    """Lambdas, closures and local classes can be sent."""

    def script(distributed: DistributedContext) -> list[int]:
        rank = distributed.rank

        class Local:
            number = rank

        functions: list[Callable[[int], int]] = distributed.allgather(lambda number: number + rank)
        classes = distributed.allgather(Local)
        return [*(function(10) for function in functions), *(each.number for each in classes)]

    assert threads.run(3, script) == [[10, 11, 12, 0, 1, 2]] * 3


def test_a_rank_keeps_its_own_object(threads: Threads) -> None:
    """A rank gets its own object back and not a copy."""

    def script(distributed: DistributedContext) -> bool:
        mine = [distributed.rank]
        return distributed.allgather(mine)[distributed.rank] is mine

    assert threads.run(3, script) == [True] * 3


def test_a_single_rank_speaks_to_itself() -> None:
    """On a single rank every collective returns the object itself, and failures are raised as they are."""
    thing = object()

    with DistributedContext() as distributed:
        assert (distributed.gather(thing), distributed.allgather(thing)) == ([thing], [thing])
        assert (distributed.broadcast(thing), distributed.broadcast_local(thing)) == (thing, thing)
        assert distributed.channel.allgather_outcome(lambda: thing) == [thing]
        assert distributed.channel.broadcast_outcome(lambda: thing) is thing
        with pytest.raises(ZeroDivisionError):
            distributed.channel.allgather_outcome(lambda: 1 // 0)


@TRANSPORTS
def test_what_several_ranks_compute_is_given_to_all(threads: Threads, force_tcp: bool) -> None:
    """With `allgather_outcome` every rank computes, and with `broadcast_outcome` only the chief."""
    computed = []

    def script(distributed: DistributedContext) -> tuple[list[int], str]:
        def name_it() -> str:
            computed.append(distributed.rank)
            return f"by rank {distributed.rank}"

        squares = distributed.channel.allgather_outcome(lambda: distributed.rank * distributed.rank)
        return squares, distributed.channel.broadcast_outcome(name_it)

    assert threads.run(4, script, force_tcp=force_tcp) == [([0, 1, 4, 9], "by rank 0")] * 4
    assert computed == [0]


@pytest.mark.parametrize("failing", [(0,), (2,), (1, 2), (0, 1, 2)])
def test_a_failure_to_compute_is_a_failure_on_all_ranks(threads: Threads, failing: tuple[int, ...]) -> None:
    """The very exception where it was raised, and elsewhere an error that names the first such rank."""

    def compute(rank: int) -> int:
        if rank in failing:
            raise KeyError(f"lost by rank {rank}")
        return rank

    def script(distributed: DistributedContext) -> tuple[BaseException, list[int]]:
        with pytest.raises((KeyError, RankFailedError)) as caught:
            distributed.channel.allgather_outcome(lambda: compute(distributed.rank))
        return caught.value, distributed.allgather(distributed.rank)

    results = threads.run(3, script)

    for rank, (error, afterwards) in enumerate(results):
        assert afterwards == [0, 1, 2]
        if rank in failing:
            assert isinstance(error, KeyError)
            assert error.args == (f"lost by rank {rank}",)
        else:
            assert isinstance(error, RankFailedError)
            assert error.rank == failing[0]
            assert error.error_text == f"KeyError: 'lost by rank {failing[0]}'"
            assert "in compute\n    raise KeyError(" in error.traceback_text
            assert textwrap.indent(error.traceback_text.strip(), "    ") in str(error)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_ends_a_computation_is_told(threads: Threads, kind: type[BaseException]) -> None:
    """An interrupt or exit in a computation is raised there and fails the other ranks."""

    def interrupt() -> None:
        raise kind

    def script(distributed: DistributedContext) -> BaseException:
        with pytest.raises((kind, RankFailedError)) as caught:
            distributed.channel.broadcast_outcome(interrupt)
        return caught.value

    chief, member = threads.run(2, script)

    assert type(chief) is kind
    assert isinstance(member, RankFailedError)
    assert kind.__name__ in str(member)


@pytest.mark.parametrize("text", [100_000 * "long, ", "surrogates \udcff\ud800", "zero \0 byte", ""])
def test_an_error_of_any_text_can_be_told(threads: Threads, text: str) -> None:
    """The text of an error of any length is shortened to its end, with invalid characters escaped."""

    def script(distributed: DistributedContext) -> str:
        def fail() -> None:
            raise ValueError(text)

        with pytest.raises((ValueError, RankFailedError)) as caught:
            distributed.channel.broadcast_outcome(fail)
        return str(caught.value)

    member = threads.run(2, script)[1]

    assert member.startswith("rank 0 failed: ")
    assert len(member) < 40_000
    assert text.encode(errors="backslashreplace").decode()[-10:] in member


class Unreadable:
    """An object that fails when it is unpickled."""

    def __init__(self, ballast: bytes = b"") -> None:
        self.ballast = ballast

    def __setstate__(self, state: object) -> None:
        raise RuntimeError("there is no such thing here")


@pytest.mark.parametrize("num_bytes", [0, 1_000_000], ids=["small", "large"])
@pytest.mark.parametrize("call", ["gather", "allgather"])
def test_an_object_that_cannot_be_unpickled_fails_on_all_ranks(threads: Threads, call: str, num_bytes: int) -> None:
    """An object that cannot be unpickled raises on all ranks an error that names its sender; the next call works."""

    def script(distributed: DistributedContext) -> tuple[str, list[int]]:
        thing = {"epoch": 3, "state": Unreadable(bytes(num_bytes))} if distributed.rank == 1 else "a string"
        with pytest.raises((ChannelError, RankFailedError)) as caught:
            getattr(distributed, call)(thing)
        return str(caught.value), distributed.allgather(distributed.rank)

    for text, after in threads.run(3, script):
        assert "the object that rank 1 sent: RuntimeError: there is no such thing here" in text
        assert "rank 0 could not unpickle" in text
        assert after == [0, 1, 2]


@pytest.mark.parametrize("call", ["broadcast", "allgather"])
def test_an_object_of_the_chief_that_cannot_be_unpickled_fails_where_it_is_read(threads: Threads, call: str) -> None:
    """An object that cannot be unpickled raises where it is read, and the next call works."""

    def script(distributed: DistributedContext) -> tuple[str, list[int]]:
        try:
            getattr(distributed, call)(Unreadable() if distributed.rank == 0 else None)
            outcome = "fine"
        except ChannelError as error:
            assert f"rank {distributed.rank} could not unpickle the object that rank 0 sent" in str(error)
            assert isinstance(error.__cause__, RuntimeError)
            outcome = "unreadable"
        return outcome, distributed.allgather(distributed.rank)

    assert threads.run(3, script) == [("fine", [0, 1, 2])] + 2 * [("unreadable", [0, 1, 2])]


def test_an_object_is_named_by_its_rank_of_all_in_a_group_of_a_node(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """In a local call, errors name ranks by their global numbers."""
    monkeypatch.setenv("CORE_SDK_CHANNEL_KEY", "a key that every rank was given")
    rendezvous = f"tcp://127.0.0.1:{free_port}"

    def script(distributed: DistributedContext) -> str:
        if distributed.cross_rank == 0:
            return ""
        with pytest.raises((ChannelError, RankFailedError)) as caught:
            distributed.allgather_local(Unreadable() if distributed.local_rank == 1 else None)
        return str(caught.value)

    results = threads.run(4, script, num_nodes=2, rendezvous=rendezvous)

    assert all("rank 2 could not unpickle the object that rank 3 sent" in text for text in results[2:])


def test_two_threads_that_call_at_once_are_refused_on_all_ranks(start_ranks: StartRanks) -> None:
    """Two threads that call at once are refused on all ranks, and the error names both calls."""
    ranks = start_ranks(
        """
        import threading
        from rank_script import await_mark, join, mark, rank, tell

        def validate():
            distributed.allgather("of the first")

        distributed = join()
        if rank == 0:
            first = threading.Thread(target=validate, daemon=True)
            first.start()
            while not distributed.channel._is_inside:
                pass
            distributed.allgather("of the second")
        else:
            await_mark("for ever" if rank == 2 else "now")
            distributed.allgather("of the first")
        """,
        3,
    )
    ranks.mark("now")
    chief, member = ranks[0].outcome(), ranks[1].outcome()

    assert chief.error == "RuntimeError"
    assert "MainThread called allgather at script.py:14" in chief.text
    assert "while another one was in allgather (its call 1, at script.py:6 (validate))" in chief.text
    assert member.error == "RankFailedError"
    assert "rank 0 failed: RuntimeError: two threads call at once" in member.text


def test_several_threads_may_call_one_after_the_other(threads: Threads) -> None:
    """Different threads may make calls one after the other."""

    def script(distributed: DistributedContext) -> list[list[int]]:
        results: list[list[int]] = []
        for number in range(20):
            call = threading.Thread(target=lambda n=number: results.append(distributed.allgather(n)))
            call.start()
            call.join()
        return results

    assert threads.run(2, script) == [[[number, number] for number in range(20)]] * 2


def test_what_is_too_large_is_refused_on_all_ranks(threads: Threads) -> None:
    """An object above the size limit is refused on all ranks, and the next call works."""

    def script(distributed: DistributedContext) -> tuple[str, list[int]]:
        thing = bytes((1 << 30) + 1) if distributed.rank == 1 else b""
        with pytest.raises((ChannelError, RankFailedError)) as caught:
            distributed.allgather(thing)
        return str(caught.value), distributed.allgather(distributed.rank)

    results = threads.run(2, script)

    assert all("too large for the channel between ranks" in text and after == [0, 1] for text, after in results)


@TRANSPORTS
def test_no_broadcast_is_lost_on_a_slow_receiver(threads: Threads, force_tcp: bool) -> None:
    """The chief runs ahead as far as the connection carries, and then waits."""

    def script(distributed: DistributedContext) -> list[int]:
        if distributed.rank == 0:
            return [distributed.broadcast(number) for number in range(5000)]
        received = []
        for number in range(5000):
            if number % 500 == 0:
                time.sleep(0.05)
            received.append(distributed.broadcast(-1))
        return received

    results = threads.run(2, script, force_tcp=force_tcp)

    assert results == [list(range(5000))] * 2


@TRANSPORTS
def test_large_objects_in_both_directions_at_once_do_not_block_each_other(threads: Threads, force_tcp: bool) -> None:
    """Large objects in both directions at once do not cause a deadlock."""

    def script(distributed: DistributedContext) -> list[int]:
        total = []
        for number in range(3):
            total.append(sum(map(len, distributed.allgather(bytes(3_000_000 + distributed.rank)))))
            total.append(len(distributed.broadcast(bytes(5_000_000 + number))))
        return total

    results = threads.run(3, script, force_tcp=force_tcp)

    assert results == [[9_000_003, 5_000_000, 9_000_003, 5_000_001, 9_000_003, 5_000_002]] * 3


CALLS = st.sampled_from(["gather", "allgather", "broadcast", "allgather_outcome", "broadcast_outcome"])


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(2, 4),
    force_tcp=st.booleans(),
    calls=st.lists(st.tuples(CALLS, st.integers(0, 100_000), st.sets(st.integers(0, 3), max_size=1)), max_size=25),
)
def test_any_sequence_of_calls_gives_what_a_model_gives(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    force_tcp: bool,
    calls: list[tuple[str, int, set[int]]],
) -> None:
    """Any sequence of calls, with failures among them, gives the results of a simple model."""

    def script(distributed: DistributedContext) -> list[object]:
        results: list[object] = []
        for call, num_bytes, failing in calls:
            mine = (distributed.rank, num_bytes * b"x")

            def compute(failing: set[int] = failing, mine: tuple[int, bytes] = mine) -> tuple[int, bytes]:
                if distributed.rank in failing:
                    raise KeyError(distributed.rank)
                return mine

            given = compute if call.endswith("outcome") else mine
            try:
                results.append(getattr(distributed.channel, call)(given))
            except (KeyError, RankFailedError) as error:
                results.append(type(error))
        return results

    results = Threads(tmp_path_factory.mktemp("model")).run(size, script, force_tcp=force_tcp)

    for rank, result in enumerate(results):
        assert result == [_modelled(rank, size, *call) for call in calls]


def _modelled(rank: int, size: int, call: str, num_bytes: int, failing: set[int]) -> object:
    values = [(each, num_bytes * b"x") for each in range(size)]
    computing = {"allgather_outcome": set(range(size)), "broadcast_outcome": {0}}.get(call, set())
    if failing & computing:
        return KeyError if rank in failing & computing else RankFailedError
    if call.startswith("broadcast"):
        return values[0]
    return None if call == "gather" and rank != 0 else values


def test_two_groups_of_the_same_processes_do_not_mix(threads: Threads) -> None:
    """Calls of two groups of the same processes may be interleaved in any order."""
    other_terms = threads.terms()

    def script(one: DistributedContext) -> list[object]:
        with DistributedContext(**place(2 - one.rank, 3), **other_terms) as other:
            first = (one.allgather(("one", one.rank)), other.allgather(("other", other.rank)))
            if one.rank == 0:
                one.broadcast("from one")
            answer = other.broadcast("from other")
            heard = "from one" if one.rank == 0 else one.broadcast(None)
            return [*first, answer, heard]

    results = threads.run(3, script)

    ones, others = [("one", rank) for rank in range(3)], [("other", rank) for rank in range(3)]
    assert results == [[ones, others, "from other", "from one"]] * 3


def test_groups_follow_each_other_at_the_same_rendezvous(threads: Threads) -> None:
    """Groups can meet one after the other at one rendezvous, each with another chief."""
    terms = threads.terms()

    def run_rank(number: int) -> list[list[int]]:
        seen = []
        for turn in range(30):
            with DistributedContext(**place((number + turn) % 3, 3), **terms) as distributed:
                seen.append(distributed.allgather(number))
        return seen

    results = together(3, run_rank).by_rank()

    assert results == [[[(rank - turn) % 3 for rank in range(3)] for turn in range(30)]] * 3


@TRANSPORTS
def test_a_value_that_was_broadcast_outlives_its_sender(threads: Threads, force_tcp: bool) -> None:
    """The chief may leave at once: it does not wait until the value has arrived."""
    has_left = threading.Event()

    def run_rank(rank: int) -> str:
        with DistributedContext(**place(rank, 2), **terms) as distributed:
            if rank == 1:
                assert has_left.wait(TIMEOUT_S)
            value = distributed.broadcast("the last words")
        has_left.set()
        return value

    terms = threads.terms(force_tcp=force_tcp)

    assert together(2, run_rank).by_rank() == ["the last words"] * 2


@pytest.mark.parametrize("num_bytes", [100, 20_000_000])
@TRANSPORTS
def test_a_value_that_was_broadcast_outlives_the_process_of_its_sender(
    start_ranks: StartRanks, force_tcp: bool, num_bytes: int
) -> None:
    """A broadcast value arrives even if its sender's process has ended before it is read."""
    ranks = start_ranks(
        """
        import time
        from rank_script import arguments, await_mark, join, mark, rank, tell

        with join() as distributed:
            if rank == 0:
                mark("chief is there")
                distributed.broadcast(bytes(arguments["num_bytes"]))
            else:
                # What does not fit into the connections has to be read before the chief can go.
                await_mark("chief is gone" if arguments["num_bytes"] < 1000 else "chief is there")
                time.sleep(0.2)
                tell(len(distributed.broadcast(None)))
        """,
        2,
        arguments={"num_bytes": num_bytes},
        force_tcp=force_tcp,
    )
    if num_bytes < 1000:
        chief = ranks[0].outcome()
        ranks.mark("chief is gone")

    assert ranks[1].outcome().values == [num_bytes]
    chief = ranks[0].outcome()
    assert (chief.status, chief.error) == (0, None)


def test_a_receiver_may_compute_for_longer_than_a_connection_may_be_silent(threads: Threads) -> None:
    """A receiver that computes for a long time is not taken for dead."""

    def script(distributed: DistributedContext) -> int:
        if distributed.rank == 1:
            time.sleep(40)
        return sum(len(distributed.broadcast(bytes(1_000_000))) for _ in range(50))

    assert threads.run(2, script, force_tcp=True, timeout_s=90.0) == [50_000_000] * 2


def test_closing_twice_does_nothing_and_a_closed_context_says_so(threads: Threads) -> None:
    """A second close() does nothing, and calls on a closed context raise ChannelError."""

    def script(distributed: DistributedContext) -> list[str]:
        distributed.allgather(None)
        distributed.close()
        distributed.close()
        messages = []
        for call in (distributed.allgather, distributed.broadcast_local):
            with pytest.raises(ChannelError) as caught:
                call(None)
            messages.append(str(caught.value))
        return messages

    for messages in threads.run(2, script):
        assert messages[0] == "allgather on a DistributedContext that cannot be used: it is closed."
        assert messages[1] == "broadcast on a DistributedContext that cannot be used: it is closed."


@TRANSPORTS
@pytest.mark.parametrize("closing", [0, 1], ids=["the chief", "a member"])
def test_another_thread_can_close_in_the_middle_of_a_call(threads: Threads, closing: int, force_tcp: bool) -> None:
    """close() from another thread ends a call, and the other ranks raise RankLeftError."""
    have_heard = threading.Barrier(3)  # until then they wait for rank 2 in their call

    def script(distributed: DistributedContext) -> BaseException:
        distributed.allgather(None)
        if distributed.rank == 2:
            have_heard.wait(TIMEOUT_S)
        elif distributed.rank == closing:
            threading.Timer(0.1, distributed.close).start()
        with pytest.raises((ChannelError, RankLeftError)) as caught:
            distributed.allgather(None)
        if distributed.rank != 2:
            have_heard.wait(TIMEOUT_S)
        return caught.value

    results = threads.run(3, script, force_tcp=force_tcp)

    kinds = [ChannelError if rank == closing else RankLeftError for rank in range(3)]
    assert [type(result) for result in results] == kinds


def test_a_signal_handler_can_close_in_the_middle_of_a_call(start_ranks: StartRanks) -> None:
    """close() in a signal handler ends a call that is in progress."""
    ranks = start_ranks(
        """
        import signal
        from rank_script import await_mark, join, mark, rank

        distributed = join()
        distributed.allgather(None)
        if rank == 0:
            signal.signal(signal.SIGUSR1, lambda *_: distributed.close())
            mark("ready")
        else:
            await_mark("closed")
        distributed.allgather(None)
        """,
        2,
    )
    ranks.await_mark("ready")
    ranks[0].send_when_waiting()

    chief = ranks[0].outcome()
    ranks.mark("closed")
    member = ranks[1].outcome()

    assert chief.error == "ChannelError"
    assert member.error == "RankLeftError"


def test_a_call_inside_a_call_is_refused(start_ranks: StartRanks) -> None:
    """A signal handler that makes one would wait for ever for the call that it has interrupted."""
    ranks = start_ranks(
        """
        import signal
        from rank_script import await_mark, join, mark, rank

        with join() as distributed:
            distributed.allgather(None)
            if rank == 0:
                signal.signal(signal.SIGUSR1, lambda *_: distributed.allgather(None))
                mark("ready")
            else:
                await_mark("refused")
            distributed.allgather(None)
        """,
        2,
    )
    ranks.await_mark("ready")
    ranks[0].send_when_waiting()

    chief = ranks[0].outcome()
    ranks.mark("refused")
    member = ranks[1].outcome()

    assert chief.error == "RuntimeError"
    assert "a signal handler makes no calls" in chief.text
    assert member.error == "RankFailedError"
    assert "rank 0 failed: RuntimeError" in member.text


def test_an_interrupted_call_is_told_to_all(start_ranks: StartRanks) -> None:
    """If Ctrl-C interrupts a call on one rank, all ranks raise an error that names it."""
    ranks = start_ranks(
        """
        import os, signal, sys, threading
        from rank_script import await_mark, join, mark, rank, tell

        distributed = join()
        distributed.allgather(None)
        if rank == 0:
            signal.signal(signal.SIGUSR1, signal.default_int_handler)
            mark("ready")
        else:
            await_mark("interrupted")
        try:
            distributed.allgather(None)
        except KeyboardInterrupt:
            mark("interrupted")
            distributed.allgather(None)
        """,
        3,
    )
    ranks.await_mark("ready")
    ranks[0].send_when_waiting()

    outcomes = ranks.outcomes()

    assert [outcomes[rank].error for rank in range(3)] == ["RankFailedError"] * 3
    assert all("rank 0 failed: KeyboardInterrupt" in outcome.text for outcome in outcomes.values())


@pytest.mark.parametrize(
    "ending",
    {
        "it returns": "",
        "sys.exit": "sys.exit(0)",
        "the context is dropped": "del distributed; mark('dropped'); await_mark('told')",
    }.items(),
    ids=lambda ending: ending[0],
)
def test_a_script_that_forgets_to_close_says_farewell_all_the_same(
    start_ranks: StartRanks, ending: tuple[str, str]
) -> None:
    """A script that does not close its context has left, not died, when it ends."""
    ranks = start_ranks(
        f"""
        import sys
        from rank_script import await_mark, join, mark, rank, tell

        distributed = join()
        distributed.allgather(None)
        if rank == 1:
            {ending[1] or "pass"}
        else:
            try:
                distributed.allgather(None)
            finally:
                mark("told")
        """
    )

    outcomes = ranks.outcomes()

    assert [outcomes[rank].error for rank in (0, 2)] == ["RankLeftError"] * 2
    assert all("rank 1 has closed its DistributedContext" in outcomes[rank].text for rank in (0, 2))


@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
@pytest.mark.parametrize("uses_with", [True, False], ids=["with", "without with"])
def test_the_error_that_ends_a_script_is_told_with_its_traceback(
    start_ranks: StartRanks, culprit: int, uses_with: bool
) -> None:
    """The error that ends a rank's script reaches the others with its traceback, with or without `with`."""
    ranks = start_ranks(
        """
        import contextlib
        from rank_script import arguments, join, rank

        def evaluate():
            raise ZeroDivisionError("no samples")

        distributed = join()
        with distributed if arguments["uses_with"] else contextlib.nullcontext():
            distributed.allgather(None)
            if rank == arguments["culprit"]:
                evaluate()
            for _ in range(10_000):
                distributed.broadcast(rank)
            distributed.allgather(None)
        """,
        arguments={"culprit": culprit, "uses_with": uses_with},
    )

    others = ranks.outcomes(without=[culprit])

    assert [outcome.error for outcome in others.values()] == ["RankFailedError"] * 2
    for outcome in others.values():
        assert f"rank {culprit} failed: ZeroDivisionError: no samples" in outcome.text
        assert "in evaluate" in outcome.text


@TRANSPORTS
@pytest.mark.parametrize("way", ["os.fork", "multiprocessing"])
@pytest.mark.parametrize("culprit", [0, 1], ids=["the chief", "a member"])
def test_a_forked_child_does_not_hide_the_death_of_its_parent(
    start_ranks: StartRanks, way: str, culprit: int, force_tcp: bool
) -> None:
    """A forked child neither hides its parent's death nor can use the context."""
    ranks = start_ranks(
        """
        import multiprocessing, os, signal
        from rank_script import arguments, await_mark, join, mark, rank, tell

        def in_child():
            try:
                distributed.allgather("from the child")
            except Exception as error:
                tell(f"{type(error).__name__}: {error}")
            distributed.channel.tell_chief("topic", b"from the child")
            distributed.close()
            mark("child has tried")
            await_mark("all over")

        def fork():
            if arguments["way"] == "multiprocessing":
                multiprocessing.get_context("fork").Process(target=in_child).start()
            elif os.fork() == 0:
                try:
                    in_child()
                finally:
                    os._exit(0)

        distributed = join()
        distributed.allgather(None)
        if rank == arguments["culprit"]:
            fork()
            await_mark("child has tried")
        distributed.allgather(rank)
        if rank == arguments["culprit"]:
            os.kill(os.getpid(), signal.SIGKILL)
        distributed.allgather(rank)
        """,
        arguments={"culprit": culprit, "way": way},
        force_tcp=force_tcp,
        timeout_s=30.0,
    )

    others = ranks.outcomes(without=[culprit])
    ranks.mark("all over")
    parent = ranks[culprit].outcome()

    assert [outcome.error for outcome in others.values()] == ["RankDiedError"] * 2
    assert all(f"rank {culprit} " in outcome.text for outcome in others.values())
    assert parent.values == [
        "ChannelError: allgather on a DistributedContext that cannot be used: it belongs to the parent process."
    ]


@TRANSPORTS
def test_nothing_is_left_of_200_contexts(threads: Threads, temporary_folder: Path, force_tcp: bool) -> None:
    """No descriptor, no thread, no channel, and no file where the ranks have met."""
    channels: list[weakref.ref[object]] = []

    def script(distributed: DistributedContext) -> None:
        channels.append(weakref.ref(distributed.channel))
        distributed.allgather(distributed.rank)

    def run(num_times: int) -> None:
        for _ in range(num_times):
            threads.run(2, script, force_tcp=force_tcp, rendezvous=None)
        gc.collect()

    run(1)
    before = _num_descriptors(), threading.active_count()

    run(100)

    wait_for(lambda: threading.active_count() <= before[1])
    assert (_num_descriptors(), threading.active_count()) == before
    assert not any(reference() for reference in channels)
    assert list(temporary_folder.iterdir()) == []


def _num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


LAST_CALLS: dict[str, Callable[[DistributedContext], object]] = {
    "gather": lambda distributed: distributed.gather(distributed.rank) in (None, [0, 1, 2]),
    "allgather": lambda distributed: distributed.allgather(distributed.rank) == [0, 1, 2],
    "broadcast": lambda distributed: distributed.broadcast(distributed.rank) == 0,
    "large allgather": lambda distributed: list(map(len, distributed.allgather(bytes(300_000)))) == [300_000] * 3,
}


@TRANSPORTS
@pytest.mark.parametrize("call", LAST_CALLS)
def test_who_leaves_right_after_the_last_call_spoils_it_for_nobody(
    threads: Threads, call: str, force_tcp: bool
) -> None:
    """A rank that leaves right after the last call does not spoil the others' results."""
    for _ in range(40):
        assert threads.run(3, LAST_CALLS[call], force_tcp=force_tcp) == [True] * 3


@TRANSPORTS
@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "os._exit(0)"], ids=["returns", "sys.exit", "os._exit"])
def test_a_process_that_ends_right_after_the_last_call_spoils_it_for_nobody(
    start_ranks: StartRanks, ending: str, force_tcp: bool
) -> None:
    """A process that ends right after the last call, even by os._exit(), does not spoil the others' results."""
    source = f"""
    import os, sys
    from rank_script import join, rank, tell

    distributed = join()
    tell(distributed.allgather(rank))
    {ending}
    """
    groups = [start_ranks(source, force_tcp=force_tcp) for _ in range(10)]

    for group in groups:
        for outcome in group.outcomes().values():
            assert (outcome.values, outcome.error, outcome.status) == ([[0, 1, 2]], None, 0)


@TRANSPORTS
def test_notices_need_no_call_on_the_other_side(threads: Threads, force_tcp: bool) -> None:
    """Notices arrive once, in their sender's order, without a call of the receiver."""

    def script(distributed: DistributedContext) -> list[tuple[int, bytes]]:
        channel, heard = distributed.channel, list[tuple[int, bytes]]()
        for number in range(3):
            channel.tell_chief("count", bytes([number]))
        distributed.allgather(None)
        channel.listen("count", lambda rank, content: heard.append((rank, content)))
        if distributed.rank == 0:
            wait_for(lambda: len(heard) == 9)
            channel.tell_all("count", b"from the chief")
        wait_for(lambda: (0, b"from the chief") in heard)
        distributed.allgather(None)
        return heard

    chief, *members = threads.run(3, script, force_tcp=force_tcp)

    for rank in range(3):
        assert [content for sender, content in chief[:9] if sender == rank] == [b"\0", b"\1", b"\2"]
    assert chief[9:] == [(0, b"from the chief")]
    assert members == [[(0, b"from the chief")]] * 2


def test_a_listener_that_fails_harms_no_other_notice(threads: Threads, caplog: pytest.LogCaptureFixture) -> None:
    """An error in a listener is logged, and later notices are delivered."""

    def script(distributed: DistributedContext) -> list[bytes]:
        heard: list[bytes] = []

        def listen(_: int, content: bytes) -> None:
            if content == b"bad":
                raise LookupError("no such content")
            heard.append(content)

        distributed.channel.listen("topic", listen)
        if distributed.rank == 0:
            distributed.channel.tell_all("topic", b"bad")
            distributed.channel.tell_all("topic", b"good")
        wait_for(lambda: bool(heard))
        distributed.allgather(None)
        return heard

    assert threads.run(2, script) == [[b"good"]] * 2
    assert "no such content" in caplog.text


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["timeout_s", "join_timeout_s"])
def test_a_time_out_that_is_no_time_is_refused(name: str, timeout_s: float) -> None:
    """A timeout that is not above 0 is refused at once."""
    with pytest.raises(ValueError, match=f"{name} is {timeout_s}; it must be a number of seconds above 0"):
        DistributedContext(**{name: timeout_s})  # type: ignore[arg-type]


def test_time_outs_may_be_infinite(threads: Threads) -> None:
    """Timeouts may be infinite."""
    results = threads.run(
        2,
        lambda distributed: distributed.allgather(distributed.rank),
        timeout_s=float("inf"),
        join_timeout_s=float("inf"),
    )

    assert results == [[0, 1]] * 2
