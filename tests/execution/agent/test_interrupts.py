"""The first Ctrl-C lets a script that asks should_preempt() save and stop; the second one ends it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from interfaces.cli.commands import COMMAND, Cli, WriteScript
from terminals import Person

from core_sdk import client
from core_sdk._home import Home

CTRL_C = "\x03"
# Ranks of a launcher, and data-loader workers that are needed for more batches than they have loaded in advance.
SAVING = """
    import itertools, os, time
    from torch.utils.data import DataLoader, IterableDataset
    from core_sdk import core

    class Endless(IterableDataset):
        def __iter__(self):
            for number in itertools.count():
                time.sleep(0.01)
                yield number

    ranks = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
    with core.init(distributed=ranks) as context:
        batches = iter(DataLoader(Endless(), batch_size=2, num_workers=2))
        context.preempt.should_preempt()
        context.distributed.allgather(None)
        for steps in itertools.count(1):
            next(batches)
            if steps == 3 and context.distributed.is_chief:
                print("training", flush=True)
            if context.preempt.should_preempt():
                break
        for _ in range(20):
            next(batches)
        with context.checkpoint.store_path({"steps_completed": steps}, shard=True) as (path, _):
            (path / f"state-{context.distributed.rank}").touch()
    print("left", flush=True)
"""
STUCK = """
    import os, time
    from core_sdk import core

    ranks = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
    with core.init(distributed=ranks) as context:
        context.preempt.should_preempt()
        context.distributed.allgather(None)
        if context.distributed.is_chief:
            print("training", flush=True)
        while True:
            time.sleep(0.01)
"""
FORKING = """
    import multiprocessing, time
    from core_sdk import core

    def work():
        works.set()
        while True:
            time.sleep(0.01)

    with core.init() as context:
        forking = multiprocessing.get_context("fork")
        works = forking.Event()
        forking.Process(target=work).start()
        works.wait()
        print("training", flush=True)
        while True:
            time.sleep(0.01)
"""
PLAIN = (sys.executable, "train.py")
LAUNCH = (sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node", "2", "--", "train.py")
RUN = (*COMMAND, "run", "--")
HOW = pytest.mark.parametrize(
    "command", [PLAIN, LAUNCH, (*RUN, *PLAIN), (*RUN, *LAUNCH)], ids=["script", "launcher", "run", "run of a launcher"]
)

Open = Callable[[str, Sequence[str]], Person]


@pytest.fixture
def open_terminal(home: Home, tmp_path: Path, write_script: WriteScript) -> Iterator[Open]:
    """Runs a command with a script on a terminal, and returns when it trains."""
    people: list[Person] = []

    def start(source: str, command: Sequence[str]) -> Person:
        write_script(source)
        people.append(Person(tmp_path, command))
        people[-1].reads("training")
        return people[-1]

    yield start
    for person in people:
        person.leaves()


@HOW
def test_the_first_ctrl_c_lets_a_script_save(open_terminal: Open, command: Sequence[str]) -> None:
    """The first Ctrl-C at a terminal, which reaches all processes, lets the script save and pauses the trial."""
    person = open_terminal(SAVING, command)

    person.types(CTRL_C)
    person.reads("stopping at the next step; Ctrl-C again ends the training at once")
    status = person.waits()

    assert status == (0 if command == PLAIN else 75), person.seen
    assert person.seen.count(b"stopping at the next step") == 1
    trial = client.get_trial(1)
    assert trial.state is client.TrialState.PAUSED
    assert len(trial.list_checkpoints()) == 1
    if command[: len(RUN)] == RUN:
        assert b"trial 1 is paused (Ctrl-C): `core-sdk trial resume 1` goes on with it" in person.seen


@HOW
def test_the_second_ctrl_c_ends_the_training_at_once(open_terminal: Open, command: Sequence[str]) -> None:
    """The second Ctrl-C ends a training at once, even if the script never reaches its next step."""
    person = open_terminal(STUCK, command)
    person.types(CTRL_C)
    person.reads("stopping at the next step")

    person.types(CTRL_C)
    status = person.waits()

    assert status == (-signal.SIGINT if command == PLAIN else 130), person.seen
    assert client.get_trial(1).state is client.TrialState.CANCELED


@pytest.mark.parametrize("command", [PLAIN, (*RUN, *LAUNCH)], ids=["script", "run of a launcher"])
def test_one_ctrl_c_ends_a_script_that_never_asks(open_terminal: Open, command: Sequence[str]) -> None:
    """One Ctrl-C ends a script that never asks should_preempt(), as without Core SDK."""
    person = open_terminal(STUCK.replace("context.preempt.should_preempt()", "pass"), command)

    person.types(CTRL_C)
    status = person.waits()

    assert status == (-signal.SIGINT if command == PLAIN else 130), person.seen
    assert b"stopping at the next step" not in person.seen
    assert client.get_trial(1).state is client.TrialState.CANCELED


@pytest.mark.parametrize("command", [PLAIN, (*RUN, *PLAIN)], ids=["script", "run"])
def test_the_same_ctrl_c_ends_what_a_script_that_never_asks_has_forked(
    open_terminal: Open, command: Sequence[str]
) -> None:
    """One Ctrl-C ends a script that never asks should_preempt() together with its forked child."""
    person = open_terminal(FORKING, command)

    person.types(CTRL_C)

    assert person.waits() == (-signal.SIGINT if command == PLAIN else 130), person.seen


def test_a_shell_around_the_script_may_die_of_ctrl_c(open_terminal: Open) -> None:
    """If Ctrl-C kills the shell around a script that has saved, the trial is paused with status 75."""
    person = open_terminal(SAVING, [*RUN, "sh", "-c", f"{sys.executable} train.py; echo on"])

    person.types(CTRL_C)

    assert person.waits() == 75, person.seen
    assert client.get_trial(1).state is client.TrialState.PAUSED


def test_a_script_keeps_its_own_handler(open_terminal: Open) -> None:
    """A script with its own handler of SIGINT gets Ctrl-C alone."""
    source = STUCK.replace(
        "import os, time", "import os, signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit('mine'))"
    )
    person = open_terminal(source, PLAIN)

    person.types(CTRL_C)
    status = person.waits()

    assert (status, b"mine" in person.seen, b"stopping" in person.seen) == (1, True, False)


def test_without_a_checkpoint_nobody_is_told_that_a_resume_goes_on(cli: Cli, open_terminal: Open) -> None:
    """Without a checkpoint, an interrupted trial and its resume say that it begins again and supersedes its reports."""
    reporting = "context.train.report_training_metrics(1, {'loss': 1.0}); context.preempt.should_preempt()"
    person = open_terminal(STUCK.replace("context.preempt.should_preempt()", reporting), [*RUN, *PLAIN])
    person.types(CTRL_C)
    person.reads("stopping")

    person.types(CTRL_C)
    person.waits()
    resumed = cli("trial", "resume", "1", "--", "true")

    assert b"goes on with it" not in person.seen
    assert (
        b"it has no checkpoint, so that `core-sdk trial resume 1` begins from nothing and hides what it has reported"
        in person.seen
    )
    assert (
        "trial 1 has no checkpoint: it begins from nothing, and what it has reported is superseded; "
        "`core-sdk trial metrics 1 --superseded` still shows it"
    ) in resumed.errors
