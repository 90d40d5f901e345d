"""A study from its beginning to its board: tries of changed code, in the background, judged against noise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from interfaces.cli.commands import Cli, WriteScript

from core_sdk._analysis.studies import MOST_BYTES, Board
from core_sdk._ground.environment import num_cpus
from core_sdk._home import Home, open_view
from core_sdk._home.rows import TrialRow

Write = Callable[..., None]
SCRIPT = """
import random, sys, time
from pathlib import Path
from core_sdk import core

GAIN = {gain}
with core.init() as context:
    draw = random.Random(context.info.trial.trial_seed)
    {middle}
    value = 0.8 + GAIN + draw.gauss(0, 0.001)
    context.train.report_validation_metrics(10, {{"accuracy": value}})
"""
WAIT = "while Path('{}').exists() and not context.preempt.should_preempt(): time.sleep(0.05)"


@pytest.fixture
def write(write_script: WriteScript) -> Write:
    """Writes a training whose accuracy has this gain."""

    def write(gain: float, middle: str = "") -> None:
        write_script(SCRIPT.format(gain=gain, middle=middle))

    return write


def begin(cli: Cli, *options: str) -> None:
    metric = ("--metric", "accuracy", "--larger-is-better")
    assert cli("study", "begin", "digits", *metric, "--script", f"{sys.executable} train.py", *options).status == 0


def test_a_study_from_its_beginning_to_its_board(cli: Cli, write: Write, home: Home, tmp_path: Path) -> None:
    """A try is judged against its parent, what was tried is named, and the board has it all."""
    begin(cli, "--seeds", "2")
    write(0.0)
    first = cli("try", "as it is")
    write(0.1)
    better = cli("try", "more gain")
    known = cli("try", "something else")
    again = cli("try", "something else", "--again", "--seeds", "1")
    kept = cli("keep", "3", "beyond noise")
    cli("report", "1", "-o", "study.html")
    board, told = cli("board"), json.loads(cli("board", "--json").output)

    assert (first.status, better.status, known.status, again.status, kept.status) == (0, 0, 2, 0, 0)
    assert "beyond noise better" in better.output
    assert "+GAIN = 0.1" in better.output
    assert "core-sdk: tried as 3: ended, 0.9" in known.errors
    assert "(n = 2). `--again` adds seeds to it" in known.errors
    assert len(board.output.encode()) <= MOST_BYTES
    assert [(one["try_id"], one["num_values"], one["verdict"]) for one in told["tries"]] == [(1, 2, ""), (3, 3, "keep")]
    assert (told["best"], told["best_line"]) == (3, [1, 3])
    assert [one.try_id for one in msgspec.convert(told, Board).tries] == [1, 3]
    assert {row.seed for row in _rows(home) if row.try_id == 3} == {0, 1, 2}
    assert "<td>· 3 (best)</td><td>3 of 3</td>" in (tmp_path / "study.html").read_text()


def test_a_try_runs_the_code_of_its_moment(cli: Cli, write: Write, home: Home, tmp_path: Path) -> None:
    """What is edited after `try` is not what runs, also by trials that wait for slots."""
    begin(cli, "--seeds", "3")
    write(0.1)

    begun = cli("try", "more gain", "--detach")
    write(0.9)
    waited = cli("wait", begun.output.strip())

    assert (begun.status, waited.status) == (0, 0)
    assert waited.output.startswith("1 ended  n=3  0.90")
    assert "GAIN = 0.9" in (tmp_path / "train.py").read_text()


def test_the_line_outlives_who_serves_it(cli: Cli, write: Write, home: Home, tmp_path: Path) -> None:
    """A server that is killed between two starts loses nothing: whoever waits starts another one."""
    begin(cli, "--seeds", "3")
    hold = tmp_path / "hold.txt"
    hold.touch()
    write(0.1, WAIT.format(hold))
    cli("try", "held", "--detach")
    _until(lambda: any(row.state == "ACTIVE" for row in _rows(home)))
    running = json.loads(cli("board", "--json").output)["tries"][0]

    os.kill(_server(home), signal.SIGKILL)
    late = cli("wait", "--timeout", "1s")
    hold.unlink()
    waited = cli("wait")

    assert (running["state"], late.status) == ("running", 124)
    assert (waited.status, waited.output[:14]) == (0, "1 ended  n=3  ")
    _until(lambda: not list((home.root / "tries").glob("*.json")))


def test_ends_have_their_exit_statuses(cli: Cli, write: Write, home: Home) -> None:
    """1 for a failure, whose last lines are shown; 75 for a stop; 0 for an end by the budget."""
    begin(cli, "--seeds", "1")
    write(0.0, "raise ValueError('it diverges')")
    failed = cli("try", "broken")
    write(0.0, "while not context.preempt.should_preempt(): time.sleep(0.05)")
    begun = cli("try", "endless", "--detach")
    _until(lambda: any(row.state == "ACTIVE" for row in _rows(home)))
    cli("trial", "pause", begun.output.strip())
    stopped = cli("wait", begun.output.strip())
    begin(cli, "--seeds", "1", "--budget", "1s")
    write(0.01, "while not context.preempt.should_preempt(): time.sleep(0.05)")
    ended = cli("try", "until the time is over", "--no-parent")

    assert (failed.status, stopped.status, ended.status) == (1, 75, 0)
    assert "ValueError: it diverges" in failed.output


def test_what_is_worse_than_its_parent_is_stopped(cli: Cli, write: Write, home: Home) -> None:
    """A trial that is behind at the same step, beyond noise, saves its time, and says why."""
    begin(cli, "--seeds", "2")
    write(0.0)
    cli("try", "as it is")
    middle = (
        "context.train.report_validation_metrics(10, {'accuracy': 0.1})\\n"
        "    while not context.preempt.should_preempt(): time.sleep(0.05)\\n    sys.exit(0)"
    )
    write(0.0, middle.replace("\\n", "\n"))

    stopped = cli("try", "much worse", "--stop-if-behind")

    assert stopped.status == 75
    assert "behind its parent 1 at step 10, beyond noise" in stopped.output


def test_commands_outside_of_a_study_say_what_begins_one(cli: Cli, home: Home) -> None:
    """An unknown study, a directory without one and a trial that is no try are named."""
    outside, unknown = cli("board"), cli("board", "letters")
    cli("run", "--", "true")
    no_try = cli("keep", "1", "why")

    assert (outside.status, unknown.status, no_try.status) == (3, 3, 3)
    assert "core-sdk study begin NAME" in outside.errors
    assert "trial 1 belongs to no try" in no_try.errors


def test_a_trial_whose_agent_is_killed_goes_on(cli: Cli, write: Write, home: Home, tmp_path: Path) -> None:
    """What happens to its agent says nothing about what is tried: the trial has another attempt."""
    begin(cli, "--seeds", "1")
    hold = tmp_path / "hold.txt"
    hold.touch()
    write(0.1, WAIT.format(hold))
    cli("try", "held", "--detach")
    _until(lambda: bool(_rows(home)) and _rows(home)[0].state == "ACTIVE")

    lock = home.folder(1).supervised_path(1)
    _until(lambda: lock.read_text().strip() != "")
    os.kill(int(lock.read_text()), signal.SIGKILL)
    hold.unlink()
    waited = cli("wait", "1")

    assert (waited.status, waited.output[:14]) == (0, "1 ended  n=1  ")
    assert [(row.state, row.num_attempts) for row in _rows(home)] == [("COMPLETED", 2)]


def _rows(home: Home) -> list[TrialRow]:
    with open_view(home) as view:
        return view.trials()


def _server(home: Home) -> int:
    told = subprocess.run(["pgrep", "-f", "core_sdk._execution.studies$"], capture_output=True, text=True).stdout
    found = [int(each) for each in told.split() if _home_of(int(each)) == str(home.root)]
    assert len(found) == 1
    return found[0]


def _home_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((each.partition(b"=")[2].decode() for each in variables if each.startswith(b"CORE_SDK_HOME=")), "")


def _until(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_a_trial_that_waits_for_slots_can_be_canceled(cli: Cli, write: Write, home: Home, tmp_path: Path) -> None:
    """It leaves the line, and is never started."""
    last = num_cpus() + 1
    begin(cli, "--seeds", str(last))
    hold = tmp_path / "hold.txt"
    hold.touch()
    write(0.1, WAIT.format(hold))
    cli("try", "held", "--detach")
    _until(lambda: [row.state for row in _rows(home)].count("ACTIVE") == last - 1)

    killed = cli("trial", "kill", str(last))
    hold.unlink()
    waited = cli("wait", "1")

    assert (killed.status, waited.status) == (0, 75)
    assert [(row.state, row.num_attempts) for row in _rows(home)][-2:] == [("COMPLETED", 1), ("CANCELED", 0)]
