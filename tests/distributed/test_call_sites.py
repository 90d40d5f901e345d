"""Call sites are for the words of errors only: calls match by operation and number."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from distributed.conftest import StartRanks
from distributed.ranks import Threads
from hypothesis import given
from hypothesis import strategies as st
from processes import wait_for
from promises import promise

from core_sdk._distributed.calls._call_site import CallSites, describe
from core_sdk.core import DistributedContext
from core_sdk.errors import ChannelError


def noted(source: str, file: str = "/somewhere/train.py") -> list[str]:
    """Returns the described call sites at which a script calls `note(here())`."""
    sites: list[bytes] = []
    variables = {"here": CallSites().current_call_site, "note": sites.append}
    exec(compile(textwrap.dedent(source), file, "exec"), variables)
    return [describe(site) for site in sites]


def test_a_call_site_is_the_line_of_the_script() -> None:
    """A call site is the script's line, with the function's name if there is one."""
    source = """\
        def evaluate():
            note(here())
        class Trainer:
            def step(self):
                def inner():
                    note(here())
                inner()
        evaluate()
        Trainer().step()
        note(here())
    """

    assert noted(source) == ["train.py:2 (evaluate)", "train.py:6 (Trainer.step.inner)", "train.py:10"]


def test_with_statements_and_threads_are_not_the_script() -> None:
    """A context manager is entered by a frame of the standard library; a thread is begun by one."""
    source = """\
        import contextlib
        @contextlib.contextmanager
        def saving():
            yield
            note(here())
        def enter(manager):
            with manager:
                pass
        enter(saving())
    """

    assert noted(source) == ["train.py:5 (saving)"]


def test_a_call_from_nowhere_but_ourselves_still_has_a_place() -> None:
    """A call without a script's frame, as from a thread pool, is described as an unknown place."""
    with ThreadPoolExecutor() as pool:
        site = pool.submit(CallSites().current_call_site).result()

    assert describe(site) == "an unknown place"


def test_functions_made_anew_at_every_step_do_not_fill_the_memory() -> None:
    """The memory for call sites is bounded, and a reused id is not mistaken for another function."""
    sites = CallSites()
    described = []
    for step in range(6_000):
        code = compile("\n" * (step % 50) + "site = here()", f"step{step % 7}.py", "exec")
        variables = {"here": sites.current_call_site}
        exec(code, variables)
        described.append(describe(variables["site"]))  # type: ignore[arg-type]

    assert described == [f"step{step % 7}.py:{step % 50 + 1}" for step in range(6_000)]
    assert len(sites._known) <= 4_096


@pytest.mark.skipif("sys.gettrace() is not None", reason="NOT TESTED: a tracer cannot encode such a name")
def test_strange_file_names_and_functions_are_told() -> None:
    """Strange file and function names are described in one short, printable line."""
    (place,) = noted("def größe(): note(here())\ngröße()", "a\nb\udcff\ud800.py" + 100_000 * "x" + ".py")

    assert place.endswith(".py:1 (größe)")
    assert place.isprintable()
    assert len(place) < 500


@given(st.binary() | st.text(alphabet="…\0a1é\n").map(str.encode))
def test_any_bytes_can_be_described(noise: bytes) -> None:
    """Any bytes from another rank can be described."""
    assert describe(noise).isprintable()
    assert describe(noise)


@pytest.mark.parametrize("call", ["broadcast", "allgather", "gather"])
def test_ranks_may_make_one_call_from_any_two_lines(start_ranks: StartRanks, call: str) -> None:
    """Told apart by any value, in one pass or in several, in a function or not: the script is right."""
    source = f"""
        from rank_script import join, rank, tell

        distributed = join()
        dp_index = rank
        value = None
        if dp_index == 0:
            value = distributed.{call}("from the first line")
        stage = "last" if dp_index else "first"
        if stage == "last":
            value = distributed.{call}(None)
        for turn in range(3):
            if (rank + turn) % 2:
                distributed.{call}("odd")
            if not (rank + turn) % 2:
                distributed.{call}("even")
        tell(value)
        distributed.close()
    """

    outcomes = start_ranks(source, 3).outcomes()

    assert {outcome.error for outcome in outcomes.values()} == {None}
    if call == "broadcast":
        assert [outcome.values for outcome in outcomes.values()] == [["from the first line"]] * 3


def test_ranks_may_make_one_call_from_scripts_of_their_own(threads: Threads) -> None:
    """A chief and its workers may run different programs, also code that is in no file."""

    def script(distributed: DistributedContext) -> object:
        variables = {"distributed": distributed}
        exec("\n" * distributed.rank + "result = distributed.allgather(distributed.rank)", variables)
        return variables["result"]

    assert threads.run(2, script) == [[0, 1], [0, 1]]


def test_two_different_calls_are_told_with_their_lines(threads: Threads) -> None:
    """If ranks make different calls, every rank's error names the calls with their lines."""
    texts = []

    def script(distributed: DistributedContext) -> None:
        code = "distributed.allgather(1)" if distributed.rank else "\n\ndistributed.gather(1)"
        with pytest.raises(ChannelError) as caught:
            exec(compile(code, "train.py", "exec"), {"distributed": distributed})
        texts.append(str(caught.value))

    threads.run(2, script)

    for text in texts:
        assert "rank 0 called gather (its call 1, at train.py:3)" in text
        assert "rank 1 called allgather (its call 1, at train.py:1)" in text


CALLS: dict[str, Callable[[DistributedContext], object]] = {
    "gather": lambda distributed: distributed.gather(1),
    "allgather": lambda distributed: distributed.allgather(1),
    "broadcast": lambda distributed: distributed.broadcast(1),
}
EARLIER = {
    "no call": (0, 0),
    "a broadcast": (0, 1),
    "an allgather": (1, 0),
    "50 of each": (50, 50),
}


@pytest.mark.parametrize("force_tcp", [False, True], ids=["unix", "tcp"])
@pytest.mark.parametrize("early", [0, 1], ids=["chief early", "member early"])
@pytest.mark.parametrize(("num_allgathers", "num_broadcasts"), EARLIER.values(), ids=EARLIER)
@promise("different-calls-told")
def test_two_different_calls_are_told_at_once(
    threads: Threads, num_allgathers: int, num_broadcasts: int, early: int, force_tcp: bool
) -> None:
    """Whatever was called before, whichever rank comes first, and however much of it a rank reads at once."""

    def texts(chief_call: str, member_call: str) -> list[str]:
        channels: dict[int, Any] = {}
        first = num_allgathers + num_broadcasts + 1

        def await_early(rank: int, number: int) -> None:
            if rank != early:
                wait_for(lambda: early in channels and channels[early]._num_calls >= number)

        def script(distributed: DistributedContext) -> str:
            channels[distributed.rank] = distributed.channel
            for _ in range(num_allgathers):
                distributed.allgather(0)
            if early == 0:  # after a broadcast the chief goes on, so that the member reads all of them together
                await_early(distributed.rank, first + (chief_call == "broadcast"))
            for _ in range(num_broadcasts):
                distributed.broadcast(0)
            await_early(distributed.rank, first)
            with pytest.raises(ChannelError) as caught:
                CALLS[member_call if distributed.rank else chief_call](distributed)
                distributed.allgather(1)  # where the chief learns what its broadcast has met
            return str(caught.value)

        return threads.run(2, script, force_tcp=force_tcp)

    for chief_call, member_call in itertools.permutations(CALLS, 2):
        for text in texts(chief_call, member_call):
            assert f"rank 0 called {chief_call} (" in text
            assert f"rank 1 called {member_call} (" in text
