"""Call sites tell a rank that skipped a collective from one that rightly calls it from somewhere else."""

from __future__ import annotations

import ast
import contextlib
import os
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core_sdk
from core_sdk.distributed._branches import are_exclusive
from core_sdk.distributed._call_site import CallSites, describe, describe_both

RunScript = Callable[..., tuple[int, str, str]]


def exclusive(source: str) -> bool:
    """Whether the lines with `one(` and `other(` are exclusive, whichever is asked for first."""
    source = textwrap.dedent(source)
    line_a, line_b = ((source[: source.index(f"{name}(")]).count("\n") + 1 for name in ("one", "other"))
    assert are_exclusive(source, line_a, line_b) == are_exclusive(source, line_b, line_a)
    return are_exclusive(source, line_a, line_b)


EXCLUSIVE = {
    "if and else": """
        if chief:
            one()
        else:
            other()
    """,
    "two arms of an elif chain": """
        if a:
            pass
        elif b:
            one()
        elif c:
            pass
        else:
            x = other()
    """,
    "an arm and the test of a later elif": """
        if a:
            one()
        elif other():
            pass
    """,
    "deep inside the arms": """
        def train():
            if chief:
                for batch in batches:
                    with timer:
                        one()
            else:
                while True:
                    try:
                        other()
                    finally:
                        pass
    """,
    "a branch that returns, and what follows": """
        def share(value):
            if not chief:
                return one(None)
            value = compute()
            return other(value)
    """,
    "a branch on one line that returns": """
        def share(value):
            if not chief: return one(None)
            return other(value)
    """,
    "a branch that returns later": """
        def share(value):
            if not chief:
                value = one(None)
                log(value)
                return value
            return other(value)
    """,
    "a branch that raises": """
        if wrong:
            one()
            raise RuntimeError
        other()
    """,
    "a branch that exits": """
        if done:
            one()
            sys.exit(0)
        other()
    """,
    "a branch that continues": """
        for batch in batches:
            if chief:
                one()
                continue
            other()
    """,
    "a branch that breaks, and what follows in the loop": """
        for batch in batches:
            if chief:
                one()
                break
            other()
    """,
    "a branch that breaks, and the else of the loop": """
        for batch in batches:
            if found:
                one()
                break
        else:
            other()
    """,
    "a nested branch that returns": """
        def f():
            with timer:
                if a:
                    if b:
                        one()
                    return
            other()
    """,
    "a branch that returns in all of its own branches": """
        def f():
            if a:
                one()
                if b:
                    return 1
                else:
                    raise ValueError
            other()
    """,
    "a branch that returns in all cases": """
        def f():
            if a:
                one()
                match b:
                    case 1:
                        return 1
                    case _:
                        return 2
            other()
    """,
    "a branch that returns from try and except": """
        def f():
            if a:
                one()
                try:
                    return g()
                except ValueError:
                    return None
            other()
    """,
    "a branch that returns in finally": """
        def f():
            if a:
                one()
                try:
                    g()
                finally:
                    return 1
            other()
    """,
    "a loop without an end, and what follows the branch": """
        def f():
            if chief:
                while True:
                    for x in xs:
                        break
                    one()
            other()
    """,
    "match cases": """
        match role:
            case "chief":
                one()
            case _:
                other()
    """,
    "the body of a case and the guard of a later one": """
        match role:
            case "chief":
                one()
            case _ if other():
                pass
    """,
    "arms of a conditional expression": """
        x = (
            one(value)
            if chief
            else other(None)
        )
    """,
    "arms of a conditional expression inside a call": """
        use(
            1,
            value=one(value) if chief
            else other(None),
        )
    """,
    "arms of a conditional expression in a comprehension": """
        xs = [
            one(value)
            if chief
            else other(None)
            for _ in range(3)
        ]
    """,
    "except handlers": """
        try:
            f()
        except ValueError:
            one()
        except TypeError:
            other()
    """,
    "a handler and the else": """
        try:
            f()
        except ValueError:
            one()
        else:
            other()
    """,
    "a try that fails before the line, and its handler": """
        try:
            compute()
            one(True)
        except ValueError:
            other(False)
    """,
    "a try that returns, and its else": """
        def f():
            try:
                one()
                return
            except ValueError:
                pass
            else:
                other()
    """,
    "a condition and its negation": """
        if ready:
            one()
        prepare()
        if not ready:
            other()
    """,
    "a comparison and its opposite": """
        if n < 3:
            one()
        if n >= 3 and x:
            other()
    """,
    "conditions that speak of ranks": """
        if ctx.distributed.rank == 0:
            one()
        if is_worker:
            other()
    """,
    "a condition on ranks, and what such a condition lets pass": """
        def f():
            if rank == 0:
                one()
            if get_rank() == 0:
                return
            other()
    """,
    "a condition on ranks, and what the else of another lets pass": """
        def f():
            if not is_main_process():
                one()
            if RANK0:
                pass
            else:
                return
            other()
    """,
    "a condition on ranks, and what such a condition lets pass in a loop": """
        if rank == 0:
            one()
        for batch in batches:
            if chief:
                continue
            other()
    """,
    "inside a method": """
        class Trainer:
            def step(self):
                if self.chief:
                    one()
                else:
                    other()
    """,
    "inside a class body": """
        class Trainer:
            if chief:
                x = one()
            else:
                x = other()
    """,
    "inside a nested function": """
        def f():
            def g():
                if chief:
                    return one()
                return other()
            return g()
    """,
    "inside a lambda": """
        share = lambda: (
            one()
            if chief
            else other()
        )
    """,
}

TOGETHER = {
    "one after the other": """
        one()
        other()
    """,
    "a branch, and what follows it": """
        if rank != 1:
            one()
        other()
    """,
    "a branch on one line, and what follows it": """
        if rank != 1: one()
        other()
    """,
    "what precedes a branch": """
        one()
        if chief:
            other()
    """,
    "the test of an if, and its arms": """
        if one():
            pass
        else:
            other()
    """,
    "a branch that returns in one of its own branches": """
        def f():
            if a:
                one()
                if b:
                    return
            other()
    """,
    "a branch that breaks, and what follows the loop": """
        for batch in batches:
            if done:
                one()
                break
        other()
    """,
    "a branch that continues, and what follows the loop": """
        while steps:
            if done:
                one()
                continue
            step()
        other()
    """,
    "a loop, and its else": """
        for batch in batches:
            one()
        else:
            other()
    """,
    "a while loop, and its else": """
        while going:
            one()
        else:
            other()
    """,
    "a branch that continues, and the else of the loop": """
        for batch in batches:
            if skip:
                one()
                continue
        else:
            other()
    """,
    "a loop, and what follows it": """
        for batch in batches:
            one()
        other()
    """,
    "a loop without an end but with a break, and what follows": """
        while True:
            one()
            if done:
                break
        other()
    """,
    "a raise that may be caught": """
        try:
            if wrong:
                one()
                raise ValueError
        except ValueError:
            pass
        other()
    """,
    "try and else": """
        try:
            one()
        except ValueError:
            pass
        else:
            other()
    """,
    "try and finally": """
        try:
            one()
        finally:
            other()
    """,
    "except and finally": """
        try:
            f()
        except ValueError:
            one()
        finally:
            other()
    """,
    "the guard of a case, and a later case": """
        match role:
            case "chief" if one():
                pass
            case _:
                other()
    """,
    "with, and its body": """
        with one():
            other()
    """,
    "arguments of one call": """
        f(
            one(),
            other(),
        )
    """,
    "lines of one call": """
        one(
            other,
            other(),
        )
    """,
    "a chain of calls": """
        (
            one()
            .other()
        )
    """,
    "the test of a conditional expression, and its arm": """
        x = (
            other(value)
            if one()
            else None
        )
    """,
    "operands": """
        x = (
            a and one()
            and other()
        )
    """,
    "parts of a comprehension": """
        xs = [
            one(x)
            for x in other()
        ]
    """,
    "two branches under one condition": """
        if rank == 0:
            one()
        log()
        if rank == 0 and ready:
            other()
    """,
    "two branches under unrelated conditions": """
        if step % 10 == 0:
            one()
        if step % 100 == 0:
            other()
    """,
    "two branches, of which one condition implies nothing": """
        if a or b:
            one()
        if not a:
            other()
    """,
    "two branches, of which one speaks of ranks": """
        if ready:
            one()
        if chief:
            other()
    """,
    "two branches, of which the other speaks of ranks": """
        if chief:
            one()
        if ready:
            other()
    """,
    "the test of a condition on ranks, and a branch under another": """
        if is_chief(one()):
            pass
        if rank > 0:
            other()
    """,
    "a branch on the same side of a return": """
        def f():
            if rank > 0:
                return
            if chief:
                one()
            other()
    """,
    "what is followed by a return": """
        def f():
            one()
            other()
            return
    """,
    "a branch that returns in some cases": """
        def f():
            if a:
                one()
                match b:
                    case 1:
                        return 1
                    case 2:
                        return 2
            other()
    """,
    "the same side of a return": """
        def f():
            if rank > 0:
                return
            one()
            other()
    """,
    "decorators of a function": """
        @one()
        @other()
        def f():
            return 1
    """,
    "a default, and what follows": """
        def f(x=one()):
            return 1
        other()
    """,
    "a function that returns, and a call below it": """
        @one()
        def f():
            return 1
        other()
    """,
    "inside a nested function": """
        def f():
            def g():
                one()
                other()
            if chief:
                return g()
            return 1
    """,
}


@pytest.mark.parametrize("source", EXCLUSIVE.values(), ids=EXCLUSIVE)
def test_lines_that_one_pass_cannot_both_run_are_exclusive(source: str) -> None:
    """Ranks may legitimately be at both of them."""
    assert exclusive(source)


@pytest.mark.parametrize("source", TOGETHER.values(), ids=TOGETHER)
def test_lines_that_one_pass_may_both_run_are_not_exclusive(source: str) -> None:
    """A rank that is at the second has skipped the first."""
    assert not exclusive(source)


@pytest.mark.parametrize("line", range(2, 6))
def test_any_line_of_a_call_stands_for_it(line: int) -> None:
    """Which of its lines a frame tells depends on the Python version."""
    source = "if chief:\n    broadcast(\n        a\n        + b,\n    )\nelse:\n    broadcast(None)\n"

    assert are_exclusive(source, line, 7)


@pytest.mark.parametrize(
    ("source", "line_a", "line_b"),
    [
        ("one()\n\nother()\n", 1, 2),
        ("one()\n", 1, 9),
        ("def f():\n    one()\n\ndef g():\n    other()\n", 2, 5),
        ("def f():\n    one()\nother()\n", 2, 3),
        ("fs = [\n    lambda: one(),\n    lambda: other(),\n]\n", 2, 3),
    ],
)
def test_lines_that_are_not_of_one_function_are_not_judged(source: str, line_a: int, line_b: int) -> None:
    """The file is not the one that runs, or the functions share their name."""
    with pytest.raises(LookupError):
        are_exclusive(source, line_a, line_b)


def test_any_two_lines_of_real_modules_can_be_judged() -> None:
    """Whatever Python allows in a file, the judgement is symmetric and there."""
    source = (
        Path(textwrap.__file__).read_text() + "\n" + Path(ast.__file__).read_text()[:20_000].rpartition("\n\n\n")[0]
    )
    num_lines = source.count("\n")

    for line in range(1, num_lines, 37):
        assert judge(source, line, num_lines // 3) == judge(source, num_lines // 3, line)


def judge(source: str, line_a: int, line_b: int) -> bool | None:
    try:
        return are_exclusive(source, line_a, line_b)
    except LookupError:
        return None


class Ranks:
    """Runs scripts as some rank would, and keeps the call sites at which they say `note(here())`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.sites = CallSites()

    def run(self, source: str, name: str = "train.py", **variables: object) -> list[bytes]:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        # It has not been edited since it runs.
        os.utime(path, (1, 1))
        noted: list[bytes] = []
        variables |= {"here": self.sites.current_call_site, "note": noted.append}
        # In a thread of its own, so that no frame of the test is on the stack.
        thread = threading.Thread(target=exec, args=(compile(path.read_text(), path, "exec"), variables))
        thread.start()
        thread.join()
        return noted

    def may_meet(self, source: str) -> bool:
        """Whether the chief's last call of this script may meet the last one of another rank."""
        chief, other = (self.run(source, rank=rank)[-1] for rank in (0, 1))
        assert self.sites.may_meet(chief, other) == self.sites.may_meet(other, chief)
        return self.sites.may_meet(chief, other)


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


NESTED = """\
def main():
    for step in range(2):
        evaluate()
    evaluate()

def evaluate():
    note(here())

main()
"""


def test_a_call_site_is_the_stack_of_the_script(ranks: Ranks) -> None:
    """The same lines give the same bytes, on every turn of a loop; another caller gives others."""
    first, second, third = ranks.run(NESTED)

    assert first == second != third
    assert [*map(describe, (first, third))] == ["train.py:7 (evaluate)"] * 2
    assert describe_both(first, third) == (
        "train.py:7 (evaluate), from train.py:3 (main)",
        "train.py:7 (evaluate), from train.py:4 (main)",
    )


def test_processes_of_one_script_have_equal_call_sites(run_script: RunScript) -> None:
    """However their ids and addresses differ."""
    source = """
        from core_sdk.distributed._call_site import CallSites

        def evaluate():
            print(CallSites().current_call_site())

        evaluate()
    """

    (status, one, _), (_, other, _) = run_script(source), run_script(source, "--seed", "2")

    assert status == 0
    assert one == other
    assert one.count("train.py") == 2


def test_threads_and_with_statements_leave_no_trace(ranks: Ranks) -> None:
    """A rank may be a process whose main thread calls, or a thread of a pool."""
    source = """\
def work():
    with manager():
        pass

@contextlib.contextmanager
def manager():
    note(here())
    yield

with ThreadPoolExecutor() as pool:
    pool.submit(work)
"""

    (site,) = ranks.run(source, contextlib=contextlib, ThreadPoolExecutor=ThreadPoolExecutor)

    assert site.split(b"\0")[2::3] == [b"work", b"manager"]


OURS = """\
def ours(call):
    return call()
"""


def our_function() -> Callable[[Callable[[], object]], object]:
    """A function of the package that calls what it is given."""
    names: dict[str, Callable[[Callable[[], object]], object]] = {}
    exec(compile(OURS, Path(core_sdk.__file__).with_name("some.py"), "exec"), names)
    return names["ours"]


def test_our_own_frames_are_left_out(ranks: Ranks) -> None:
    """What we call inside is no business of the script's, and differs between ranks."""
    source = """\
        def work():
            ours(lambda: note(here()))

        ours(work)
        work()
    """

    within, without = ranks.run(source, ours=our_function())

    assert within.split(b"\0")[2::3] == [b"<module>", b"work", b"work.<locals>.<lambda>"]
    assert describe(without) == "train.py:2 (work.<lambda>)"


def test_a_call_from_nowhere_but_ourselves_still_has_a_place() -> None:
    """From a thread of ours, say."""
    with ThreadPoolExecutor() as pool:
        site = pool.submit(our_function(), CallSites().current_call_site).result()

    assert isinstance(site, bytes)
    assert site.split(b"\0")[1:] == [b"2", b"ours"]


def test_of_a_deep_stack_the_innermost_frames_are_told(ranks: Ranks) -> None:
    """They fit into a frame on the wire, and ranks that recurse equally deep still meet."""
    source = """\
        def descend(depth):
            if depth:
                return descend(depth - 1)
            if rank == 0:
                return note(here())
            return note(here())

        descend(500)
    """

    (chief,), (same,), (other,) = (ranks.run(source, rank=rank) for rank in (0, 0, 1))

    assert chief == same
    assert chief.count(b"descend") == 32
    assert describe(chief) == "train.py:5 (descend)"
    assert ranks.sites.may_meet(chief, other)


def test_a_skip_deep_in_the_stack_is_seen(ranks: Ranks) -> None:
    """Where the outermost frames that are told agree, stacks can be laid side by side."""
    source = """\
        def descend(depth):
            if depth:
                return descend(depth - 1)
            if rank == 0:
                note(here())
            note(here())

        descend(500)
    """

    first, second = ranks.run(source, rank=0)

    assert not ranks.sites.may_meet(first, second)


@pytest.mark.parametrize("descend_from", ["descend(depth + 1)", "ours(partial(descend, depth + 1))"])
def test_cut_stacks_that_cannot_be_laid_side_by_side_may_meet(ranks: Ranks, descend_from: str) -> None:
    """One is deeper than the other: what is left of them is not of the same calls."""
    source = f"""\
        def descend(depth):
            if depth == 200 + rank:
                note(here())
                return
            if depth % 2:
                {descend_from}
            if depth % 2 == 0:
                {descend_from}

        descend(0)
    """

    (chief,), (worker,) = (ranks.run(source, rank=rank, ours=our_function(), partial=partial) for rank in (0, 1))

    assert ranks.sites.may_meet(chief, worker)


def test_a_skipped_collective_is_seen(ranks: Ranks) -> None:
    """The other rank's next call of the same operation would be paired with it."""
    source = """\
        def main():
            if rank == 0:
                warm_up()
            evaluate()

        def warm_up():
            note(here())

        def evaluate():
            note(here())

        main()
    """

    skipped, following = ranks.run(source, rank=0)

    assert ranks.run(source, rank=1) == [following]
    assert not ranks.sites.may_meet(skipped, following)
    assert not ranks.sites.may_meet(following, skipped)


def test_ranks_may_call_from_the_branches_of_one_if(ranks: Ranks) -> None:
    """The chief sends where the others receive."""
    source = """\
        if rank == 0:
            note(here())
        else:
            note(
                here()
            )
    """

    assert ranks.may_meet(source)


def test_ranks_may_run_loops_of_their_own(ranks: Ranks) -> None:
    """The chief leads, the workers follow, and their calls lie in different functions."""
    source = """\
        def lead():
            note(here())

        def follow():
            for _ in range(3):
                note(here())

        def main():
            if rank == 0:
                return lead()
            follow()

        main()
    """

    assert ranks.may_meet(source)


def test_ranks_may_call_different_functions_from_one_line(ranks: Ranks) -> None:
    """Which of them, is not told by lines."""
    source = """\
        def lead():
            note(here())

        def follow():
            note(here())

        (follow if rank else lead)()
    """

    assert ranks.may_meet(source)


def test_a_call_may_lie_deeper_on_one_rank(ranks: Ranks) -> None:
    """Up to where both stacks go, they are the same."""
    source = """\
        def share():
            note(here())

        note(here()) if rank else share()
    """

    assert ranks.may_meet(source)


def test_ranks_that_run_different_scripts_may_meet(ranks: Ranks) -> None:
    """There is nothing to compare them by."""
    (chief,) = ranks.run("note(here())", name="chief.py")
    (worker,) = ranks.run("\nnote(here())", name="worker.py")

    assert ranks.sites.may_meet(chief, worker)


SKIPPING = """\
if rank == 0:
    note(here())
note(here())
"""


def test_hosts_may_keep_the_script_under_different_directories(ranks: Ranks, tmp_path: Path) -> None:
    """The file and the directory around it are enough to know it by."""
    there = Ranks(tmp_path / "there")
    there.directory.mkdir()
    name = "project/train.py"

    chief = ranks.run(SKIPPING, name, rank=0)[0]
    same, other = there.run(SKIPPING, name, rank=0)
    (there.directory / name).unlink()

    assert ranks.sites.may_meet(chief, same)
    assert not ranks.sites.may_meet(chief, other)
    assert not ranks.sites.may_meet(other, chief)


@pytest.mark.parametrize(
    "now", [None, "def f(:", "\0", "# -*- coding: none -*-", "\n" * 9, "not " * 3_000 + "x", "-" * 100_000 + "x"]
)
def test_ranks_may_meet_where_the_source_is_gone_or_another(ranks: Ranks, now: str | None) -> None:
    """A script that is right is not stopped because we cannot read it."""
    first, second = ranks.run(SKIPPING, rank=0)
    path = ranks.directory / "train.py"
    path.unlink()
    if now is not None:
        path.write_text(now)
        os.utime(path, (1, 1))

    assert ranks.sites.may_meet(first, second)


def test_a_script_edited_while_it_runs_is_not_judged_by(ranks: Ranks) -> None:
    """Its lines are not those that run."""
    first, second = ranks.run(SKIPPING, rank=0)
    path = ranks.directory / "train.py"
    path.write_text(SKIPPING)
    tomorrow = path.stat().st_mtime + 86_400
    os.utime(path, (tomorrow, tomorrow))

    assert ranks.sites.may_meet(first, second)


def test_a_judgement_is_made_once(ranks: Ranks) -> None:
    """A script that is right repeats its pairs at each step; its source is not read each time."""
    first, second = ranks.run(SKIPPING, rank=0)

    before = ranks.sites.may_meet(first, second)
    (ranks.directory / "train.py").unlink()

    assert not before
    assert not ranks.sites.may_meet(first, second)
    assert CallSites().may_meet(first, second)


def test_functions_made_anew_at_every_step_do_not_fill_the_memory(ranks: Ranks) -> None:
    """Nor is one taken for another that had its id."""
    source = """\
        import gc
        for step in range(6_000):
            code = compile(chr(10) * (step % 50) + "note(here())", f"step{step % 7}.py", "exec")
            exec(code)
    """

    sites = ranks.run(source)

    assert [*map(describe, sites)] == [f"step{step % 7}.py:{step % 50 + 1}" for step in range(6_000)]
    assert len(ranks.sites._sites) <= 4_096


def test_strange_file_names_and_functions_are_told(ranks: Ranks) -> None:
    """A message stays on its line, and the site can be sent."""
    source = """\
        exec(compile("def größe(): note(here())", "a\\nb\\udcff\\ud800.py", "exec"))
        größe()
    """

    (site,) = ranks.run(source)

    assert describe(site).endswith(".py:1 (größe)")
    assert "\n" not in describe(site)


@given(st.binary() | st.text(alphabet="…\0a1é\n").map(str.encode))
def test_any_bytes_can_be_described_and_compared(noise: bytes) -> None:
    """They came from elsewhere."""
    sites = CallSites()

    described = describe(noise)

    assert described
    assert described.isprintable()
    assert sites.may_meet(noise, sites.current_call_site())
    assert sites.may_meet(sites.current_call_site(), noise)
    assert len(describe_both(noise, b"train.py\0" + b"1\0f")) == 2
