"""A terminal that is closed leaves the training running, and `--detach` needs none."""

from __future__ import annotations

import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from interfaces.cli.commands import COMMAND, Cli, StartCli, WriteScript
from processes import TIMEOUT_S, wait_for
from promises import promise
from terminals import Person

from core_sdk import client
from core_sdk._home import Home

TRAINING = """
    import os, pathlib, time
    from core_sdk import core

    ranks = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
    with core.init(distributed=ranks) as context:
        context.preempt.should_preempt()
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            (path / f"state-{context.distributed.rank}").touch()
        print("started", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        for line in range(1000):
            print("line", line)
        context.train.report_training_metrics(1, {"loss": 0.5})
    print("left", flush=True)
"""
LAUNCH = (sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node", "2", "--", "train.py")

Open = Callable[[Sequence[str]], Person]


@pytest.fixture
def open_terminal(home: Home, tmp_path: Path, write_script: WriteScript) -> Iterator[Open]:
    """Runs a command on a terminal, in the directory of the script."""
    write_script(TRAINING)
    people: list[Person] = []

    def start(command: Sequence[str]) -> Person:
        people.append(Person(tmp_path, command))
        return people[-1]

    yield start
    for person in people:
        person.leaves()


def trains_on(home: Home, directory: Path, attempt: int = 1) -> None:
    """Lets the training end, and looks at what is recorded of it."""
    (directory / "go").touch()
    wait_for(lambda: client.get_trial(1).state is not client.TrialState.ACTIVE)
    assert client.get_trial(1).state is client.TrialState.COMPLETED
    assert [each.metrics["loss"] for each in client.get_trial(1).iter_metrics("training")] == [0.5]
    if (log := home.trial(1).log_path(attempt)).exists():
        assert log.read_text().count("line 999") == log.read_text().count("left") > 0


@promise("terminal-closed")
@pytest.mark.parametrize("command", [(sys.executable, "train.py"), LAUNCH], ids=["script", "launcher"])
def test_a_training_outlives_the_terminal_of_its_command(
    home: Home, open_terminal: Open, tmp_path: Path, command: Sequence[str]
) -> None:
    """The command ends, the training goes on, and its output and its end are kept."""
    person = open_terminal([*COMMAND, "run", "--", *command])
    person.reads("started")

    person.closes_the_terminal()

    assert person.process.wait(TIMEOUT_S) == 128 + signal.SIGHUP
    trains_on(home, tmp_path)


@pytest.mark.parametrize("verb", ["resume", "continue"])
def test_a_resumed_training_outlives_the_terminal(
    cli: Cli, start_cli: StartCli, open_terminal: Open, tmp_path: Path, verb: str
) -> None:
    """A training started by `trial resume` or `trial continue` outlives its terminal, as with `run`."""
    first = start_cli("run", "--", sys.executable, "train.py")
    first.read_until("started")
    cli("trial", "kill", "1")
    first.wait()
    person = open_terminal([*COMMAND, "trial", verb, "1"])
    person.reads("started")

    person.closes_the_terminal()
    person.process.wait(TIMEOUT_S)
    (tmp_path / "go").touch()
    trial_id = 1 if verb == "resume" else 2
    wait_for(lambda: client.get_trial(trial_id).state is not client.TrialState.ACTIVE)

    assert client.get_trial(trial_id).state is client.TrialState.COMPLETED


@promise("terminal-closed")
def test_a_launcher_outlives_its_terminal(home: Home, open_terminal: Open, tmp_path: Path) -> None:
    """A launcher outlives its terminal, since it supervises the ranks, and its further output is dropped."""
    person = open_terminal(LAUNCH)
    person.reads("[rank=1] started")

    person.closes_the_terminal()
    trains_on(home, tmp_path)

    assert person.process.wait(TIMEOUT_S) == 0


def test_a_stopped_training_goes_on_when_its_terminal_is_closed(
    home: Home, open_terminal: Open, tmp_path: Path
) -> None:
    """A command stopped by Ctrl-Z trains on after its terminal is closed, which sends SIGHUP and SIGCONT."""
    person = open_terminal([*COMMAND, "run", "--", sys.executable, "train.py"])
    person.reads("started")
    command = psutil.Process(person.process.pid)
    person.process.send_signal(signal.SIGTSTP)
    wait_for(lambda: command.status() == psutil.STATUS_STOPPED)

    person.closes_the_terminal()
    person.process.send_signal(signal.SIGCONT)
    person.process.wait(TIMEOUT_S)

    trains_on(home, tmp_path)


def test_a_hang_up_says_how_to_find_the_training(
    home: Home, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """After a hang-up, the command's last line says that the trial trains on and how to follow its output."""
    write_script(TRAINING)
    run = start_cli("run", "--", sys.executable, "train.py")
    run.read_until("started")

    run.process.send_signal(signal.SIGHUP)
    status, _, errors = run.wait()

    assert status == 128 + signal.SIGHUP
    assert errors.endswith("core-sdk: hung up: trial 1 trains on; `core-sdk trial logs 1 --follow` shows its output\n")
    trains_on(home, tmp_path)


def test_a_detached_training_needs_no_terminal(home: Home, cli: Cli, write_script: WriteScript, tmp_path: Path) -> None:
    """The command prints the trial's number and is done, and `trial logs --follow` shows the output."""
    write_script("import sys; print('input', sys.stdin.read())\n" + textwrap.dedent(TRAINING))

    run = cli("run", "--detach", "--", sys.executable, "train.py")
    is_running = client.get_trial(1).state is client.TrialState.ACTIVE
    (tmp_path / "go").touch()
    followed = cli("trial", "logs", "1", "--follow")

    assert (run.status, run.output) == (0, "1\n")
    assert "`core-sdk trial logs 1 --follow` shows its output" in run.errors
    assert is_running
    assert followed.output.splitlines()[0] == "input "
    assert followed.output.splitlines()[-1] == "left"
    trains_on(home, tmp_path)


@pytest.mark.parametrize("verb", ["resume", "continue"])
def test_a_trial_is_resumed_detached(
    home: Home, cli: Cli, write_script: WriteScript, tmp_path: Path, verb: str
) -> None:
    """A trial resumed or continued with --detach prints its id, and from which checkpoint it goes on."""
    write_script(TRAINING)
    cli("run", "--detach", "--", sys.executable, "train.py")
    wait_for(lambda: "started" in home.trial(1).log_path(1).read_text())
    cli("trial", "kill", "1")
    (tmp_path / "go").touch()

    run = cli("trial", verb, "1", "--detach")
    trial_id = 1 if verb == "resume" else 2
    wait_for(lambda: client.get_trial(trial_id).state is not client.TrialState.ACTIVE)

    assert (run.status, run.output) == (0, f"{trial_id}\n")
    assert "continuing from checkpoint" in run.errors
    assert client.get_trial(trial_id).state is client.TrialState.COMPLETED


def test_a_detached_command_that_does_not_exist_leaves_no_trial(home: Home, cli: Cli) -> None:
    """A detached command that does not exist is refused as in the foreground, and no trial is left."""
    run = cli("run", "--detach", "--", "no-such-program")

    assert (run.status, run.output) == (127, "")
    assert home.trial_ids() == []
