"""Processes below an attempt, in whatever session: they are ended with it, and keep its slots while they live."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from interfaces.cli.commands import Cli, WriteScript, run_cli
from processes import TIMEOUT_S, is_living, wait_for
from promises import promise

from core_sdk._ground.alive import is_alive, signed_by
from core_sdk._home import Home
from core_sdk._home.attempts.running import await_end
from core_sdk._home.next_attempt import mark_of_attempt
from core_sdk._machine.processes import end_marked, guardians_of
from core_sdk._machine.slots import SlotDirectory, Ticket

SCRIPT = """
import os, pathlib, signal, subprocess, sys, time
from core_sdk import core

HERE = pathlib.Path(__file__).parent
SLEEP = [sys.executable, "-c", "import signal, sys, time; signal.signal(signal.SIGTERM, {handler}); time.sleep(600)"]
started = []

def start(handler="signal.SIG_DFL", **options):
    command = [*SLEEP[:2], SLEEP[2].format(handler=handler)]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started.append(subprocess.Popen(command, **quiet, **options).pid)

def start_daemon():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            os.execv(SLEEP[0], [*SLEEP[:2], SLEEP[2].format(handler="signal.SIG_DFL")])
        os._exit(0)
    started.append(int(os.read(reading, 100)))
    os.wait()

with core.init(name="server") as context:
    start()
    start(start_new_session=True)
    start(handler="signal.SIG_IGN", start_new_session=True)
    start_daemon()
    (HERE / "pids.part").write_text(" ".join(map(str, started)))
    (HERE / "pids.part").rename(HERE / "pids")
    while not (HERE / "end").exists() and not context.preempt.should_preempt():
        time.sleep(0.01)
    if (HERE / "end").exists() and (HERE / "end").read_text() == "error":
        raise ValueError("failed")
"""


class Attempt:
    """The first attempt of a home, whose script has started processes of every kind."""

    def __init__(self, home: Home, directory: Path) -> None:
        self._directory = directory
        self.folder = home.trial(1)
        self.mark = str(mark_of_attempt(self.folder, 1))
        pids = directory / "pids"
        wait_for(pids.exists)
        self.pids = [int(pid) for pid in pids.read_text().split()]
        self.script = psutil.Process(self.pids[0]).ppid()
        agent = signed_by(self.folder.supervised_path(1))
        assert agent is not None
        self.agent = agent

    def living(self) -> list[int]:
        return [pid for pid in self.pids if is_living(pid)]

    def end(self, way: str) -> None:
        (self._directory / "end").write_text(way)

    def kill(self, *pids: int) -> None:
        for pid in pids:  # stopped first, so that none hears of another's end
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def attempt(home: Home, tmp_path: Path, write_script: WriteScript, request: pytest.FixtureRequest) -> Iterator[Attempt]:
    options = getattr(request, "param", [])
    ran = run_cli(
        tmp_path, "run", "--detach", "--slots", "1", *options, "--", sys.executable, str(write_script(SCRIPT))
    )
    assert ran.status == 0, ran.errors
    found = Attempt(home, tmp_path)
    yield found
    end_marked(found.mark, least_s=0)


@pytest.fixture
def waiting(attempt: Attempt) -> Iterator[Ticket]:
    """A ticket of another home that waits for the slot of the attempt."""
    ticket = Ticket(SlotDirectory(), Path("/another/home"), 1, ["cpu-0"])
    yield ticket
    ticket.release()


WAYS: dict[str, Callable[[Attempt, Cli], object]] = {
    "end": lambda attempt, _: attempt.end("well"),
    "error": lambda attempt, _: attempt.end("error"),
    "pause": lambda _, cli: cli("trial", "pause", "1"),
    "kill": lambda _, cli: cli("trial", "kill", "1"),
    "killed script": lambda attempt, _: attempt.kill(attempt.script),
    "killed agent": lambda attempt, _: attempt.kill(attempt.agent),
}


def assert_given_when_gone(waiting: Ticket, attempt: Attempt) -> None:
    living = attempt.pids
    while not waiting.take(1, ["cpu-0"]):
        living = attempt.living()
    assert attempt.living() == [], living


@promise("slots-kept-to-the-end")
@promise("nothing-left-behind")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_an_attempt_has_started_outlives_it_or_its_slot(
    way: str, attempt: Attempt, waiting: Ticket, cli: Cli
) -> None:
    """Children, daemons and children in sessions of their own are ended with the attempt, before its slot is free."""
    assert (len(attempt.living()), waiting.held) == (4, ())

    WAYS[way](attempt, cli)

    assert_given_when_gone(waiting, attempt)
    assert await_end(attempt.folder, TIMEOUT_S)


@promise("nothing-left-behind")
@pytest.mark.parametrize("attempt", [["--time-limit", "1s"]], indirect=True)
def test_a_time_limit_ends_what_the_script_has_started(attempt: Attempt, waiting: Ticket) -> None:
    """The processes of a script whose time is over are ended and named, and then its slot is free."""
    assert_given_when_gone(waiting, attempt)

    log = attempt.folder.log_path(1).read_text()
    assert "core-sdk: the command has left processes behind, which are ended: " in log
    assert all(f"(pid {pid})" in log for pid in attempt.pids)


@promise("slots-kept-to-the-end")
@promise("supervisor-killed")
def test_what_is_left_of_a_killed_attempt_keeps_its_slot_until_it_is_killed(
    attempt: Attempt, waiting: Ticket, cli: Cli
) -> None:
    """If agent, guardian and script are killed together, what is left keeps the slot, is named, and can be killed."""
    attempt.kill(attempt.agent, *guardians_of(attempt.mark), attempt.script)
    wait_for(lambda: not is_alive(attempt.folder.supervised_path(1)))
    kept = [waiting.take(1, ["cpu-0"]), waiting.obstacles()]
    killed = cli("trial", "kill", "1")

    assert_given_when_gone(waiting, attempt)
    assert kept[0] == ()
    assert "`core-sdk trial kill 1` ends what its agent has left: process " in str(kept[1])
    assert killed.status == 0


@promise("slots-kept-to-the-end")
def test_the_session_of_a_killed_attempt_keeps_its_slot_for_those_who_see_no_more(
    attempt: Attempt, waiting: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user, who cannot see marks, sees by the session that a process of the attempt lives."""
    monkeypatch.setattr("core_sdk._machine.processes._left_processes.variables_of", _refuse)
    attempt.kill(attempt.agent, *guardians_of(attempt.mark), attempt.script)
    wait_for(lambda: not is_alive(attempt.folder.supervised_path(1)))

    kept = waiting.take(1, ["cpu-0"])
    os.kill(attempt.pids[0], signal.SIGKILL)
    wait_for(lambda: bool(waiting.take(1, ["cpu-0"])))

    assert kept == ()


def _refuse(pid: int) -> list[str]:
    raise PermissionError(pid)
