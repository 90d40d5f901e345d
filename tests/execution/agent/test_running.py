"""Attempts are found again, seen to end, killed and taken back by a process that has not started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from processes import TIMEOUT_S, is_living, kill_tree, wait_for
from promises import promise

from core_sdk._execution.agent.driving import DrivenTrial
from core_sdk._execution.agent.starting import Agent
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.ending import read_end
from core_sdk._home.attempts.killing import kill
from core_sdk._home.attempts.running import await_end, never_began, take_back, take_for_dead
from core_sdk._home.attempts.starting import AttemptStart, begin, resume
from core_sdk._home.states import trial_state
from core_sdk.errors import AttemptError, TrialRunningError

WAITING = """
import pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("pids").write_text(f"{child.pid} {daemon.pid}")
while not pathlib.Path("go").exists():
    time.sleep(0.01)
sys.exit(3)
"""


@pytest.fixture
def start(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., AttemptStart]]:
    """Starts a Python script as a trial, whose agent nobody listens to."""
    monkeypatch.chdir(tmp_path)
    agents: list[Agent] = []

    def start(source: str) -> AttemptStart:
        begun = begin(home.root, [sys.executable, "-c", source])
        agents.append(Agent())
        agents[-1].start(begun)
        agents[-1].close()
        return begun

    yield start
    for agent in agents:
        kill_tree(agent.process.pid)
        agent.process.wait(TIMEOUT_S)


def pids(directory: Path) -> list[int]:
    """Returns the pids of the processes that the script has started, once it has."""
    path = directory / "pids"
    wait_for(lambda: path.exists() and len(path.read_text().split()) == 2)
    return [int(pid) for pid in path.read_text().split()]


def test_the_end_of_an_attempt_is_seen_by_whoever_has_not_started_it(
    start: Callable[..., AttemptStart], home: Home, tmp_path: Path
) -> None:
    """A process that did not start an attempt sees its end with its exit status, which gives the trial's state."""
    begun = start(WAITING)
    pids(tmp_path)

    is_early = await_end(begun.folder, timeout_s=0)
    (tmp_path / "go").touch()
    has_ended = await_end(begun.folder, TIMEOUT_S)

    record = begun.folder.read_exit(1)
    assert (is_early, has_ended) == (False, True)
    assert record is not None
    assert trial_state(read_end(begun.folder, record.code), is_running=False) == (
        "ERROR",
        "its process exited with status 3",
    )


@promise("trial-killed")
def test_a_killed_attempt_leaves_no_process_and_has_an_end(
    start: Callable[..., AttemptStart], home: Home, tmp_path: Path
) -> None:
    """A killed attempt leaves no process, in whatever session, has an end, and the next attempt can begin at once."""
    begun = start(WAITING)
    started = pids(tmp_path)

    kill(begun.folder, 1)

    record = begun.folder.read_exit(1)
    assert not any(map(is_living, started))
    assert record is not None
    assert record.code == -signal.SIGKILL
    assert begun.folder.running_attempt() is None
    resume(begun.folder).lock.release()


def test_an_attempt_that_has_ended_is_not_killed(start: Callable[..., AttemptStart]) -> None:
    """Killing an attempt that has ended kills nothing, since its agent's pid may belong to another process."""
    begun = start("")
    await_end(begun.folder, TIMEOUT_S)

    kill(begun.folder, 1)

    record = begun.folder.read_exit(1)
    assert record is not None
    assert record.code == 0


def test_no_other_process_is_killed_in_place_of_an_agent(start: Callable[..., AttemptStart], tmp_path: Path) -> None:
    """If the recorded pid belongs to another process, kill() spares it and finds the attempt's own by their mark."""
    begun = start(WAITING)
    started = pids(tmp_path)
    with subprocess.Popen(["sleep", "600"]) as other:
        begun.folder.supervised_path(1).write_text(str(other.pid))

        kill(begun.folder, 1)
        has_other_ended = other.poll() is not None
        other.kill()

    assert not has_other_ended
    assert not any(map(is_living, started))


def test_an_attempt_of_another_machine_is_not_killed(home: Home) -> None:
    """An attempt whose lock is held but that has no process here cannot be killed: it runs on another machine."""
    begun = begin(home.root, ["true"])

    with pytest.raises(AttemptError, match="cannot kill trial 1"):
        kill(begun.folder, 1)

    begun.lock.release()


def test_an_attempt_whose_starter_died_in_time_never_began(home: Home) -> None:
    """An attempt whose starter died before the start is taken back, and the next attempt gets its number."""
    begun = begin(home.root, ["true"])
    is_starting = never_began(begun.folder, 1)
    with pytest.raises(TrialRunningError):
        take_back(begun.folder, 1)
    begun.lock.release()

    is_left = never_began(begun.folder, 1)
    take_back(begun.folder, 1)
    again = resume(begun.folder, is_again=True)

    assert (is_starting, is_left) == (False, True)
    assert again.number == 1
    again.lock.release()


def test_an_attempt_that_has_run_is_not_taken_back(start: Callable[..., AttemptStart]) -> None:
    """An attempt that has run is not taken back, neither while it runs nor afterwards without an exit status."""
    begun = start(WAITING)

    def is_refused(folder: TrialFolder) -> bool:
        with pytest.raises(TrialRunningError):
            take_back(folder, 1)
        return not never_began(folder, 1)

    while_it_runs = is_refused(begun.folder)
    kill(begun.folder, 1)
    begun.folder.exit_path(1).unlink()

    assert while_it_runs
    assert is_refused(begun.folder)


def test_what_was_taken_for_dead_does_not_count_as_running_and_records_no_end(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that was taken for dead does not count as running, and its later end is not recorded."""
    monkeypatch.chdir(tmp_path)
    begun = begin(home.root, [sys.executable, "-c", WAITING])
    agent = Agent()
    agent.start(begun)
    _, daemon = pids(tmp_path)

    take_for_dead(begun.folder)
    was_running = begun.folder.running_attempt()
    (tmp_path / "go").touch()
    ended = agent.wait()
    os.kill(daemon, signal.SIGKILL)
    agent.process.wait(TIMEOUT_S)
    agent.close()

    assert (was_running, ended.code) == (None, 3)
    assert begun.folder.read_exit(1) is None


@pytest.mark.parametrize("code", [0, 1])
def test_what_a_program_drives_records_no_end_after_it_was_taken_for_dead(home: Home, code: int) -> None:
    """A program that drives its trial records its end, but not once its host was taken for dead."""
    dead, living = DrivenTrial.begin(), DrivenTrial.begin()
    take_for_dead(dead.folder)

    dead.end(code, "why")
    living.end(code, "why")

    ended = living.folder.read_exit(1)
    assert dead.folder.read_exit(1) is None
    assert ended is not None
    assert (ended.code, ended.reason) == (code, "why")
    assert living.folder.running_attempt() is None


def test_an_attempt_can_end_with_another_process(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ends_with, an attempt with all its processes ends with another process, and no end is recorded."""
    monkeypatch.chdir(tmp_path)
    begun = begin(home.root, [sys.executable, "-c", WAITING])
    agent = Agent()
    with subprocess.Popen(["sleep", "600"]) as other:
        agent.start(begun, ends_with=other.pid)
        started = pids(tmp_path)
        other.kill()

    agent.process.wait(TIMEOUT_S)
    agent.close()
    wait_for(lambda: not any(map(psutil.pid_exists, started)))
    assert begun.folder.read_exit(1) is None
