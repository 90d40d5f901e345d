"""Agents that one process forks do all that others do, and share nothing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from processes import TIMEOUT_S, kill_tree, wait_for

from core_sdk._execution.agent._messages import CommandEnded
from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._home import Home
from core_sdk._home.attempts.killing import kill
from core_sdk._home.attempts.running import await_end
from core_sdk._home.attempts.starting import AttemptStart, begin
from core_sdk.errors import CommandError

WAITING = """
import pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("pid-" + sys.argv[1]).write_text(f"{child.pid}.")
while not pathlib.Path("go").exists():
    time.sleep(0.01)
print("done")
"""

Run = Callable[..., tuple[AttemptStart, Agent]]


@pytest.fixture
def spawner() -> Iterator[AgentSpawner]:
    with_agents = AgentSpawner()
    yield with_agents
    with_agents.close()


@pytest.fixture
def run(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawner: AgentSpawner) -> Iterator[Run]:
    """Starts a Python script as a trial."""
    monkeypatch.chdir(tmp_path)
    started: list[tuple[AttemptStart, Agent]] = []

    def run(source: str, *arguments: str, agent: Agent | None = None) -> tuple[AttemptStart, Agent]:
        start = begin(home.root, [sys.executable, "-c", source, *arguments])
        agent = agent or Agent(spawner)
        agent.start(start)
        started.append((start, agent))
        return start, agent

    yield run
    (tmp_path / "go").touch()
    for start, agent in started:
        agent.close()
        assert await_end(start.folder, TIMEOUT_S)


def child_of_script(directory: Path, argument: str) -> psutil.Process:
    """Returns the process that a script has started, once it has."""
    path = directory / f"pid-{argument}"
    wait_for(lambda: path.exists() and path.read_text().endswith("."))
    return psutil.Process(int(path.read_text().rstrip(".")))


def agent_of(start: AttemptStart) -> psutil.Process:
    return psutil.Process(int(start.folder.supervised_path(start.number).read_bytes()))


def process_of(spawner: AgentSpawner) -> psutil.Process:
    return psutil.Process(spawner.process.pid)


def test_a_forked_agent_runs_its_command(run: Run) -> None:
    """A forked agent runs its command with the starter's present environment, and records output and exit status."""
    os.environ["NEWEST"] = "yes"

    start, agent = run("import os, sys; print(os.environ['NEWEST']); sys.exit(3)")

    assert agent.wait() == CommandEnded(3)
    assert start.folder.log_path(1).read_text() == "yes\n"


def test_a_command_finds_the_signals_as_with_any_other_agent(run: Run) -> None:
    """A command under a forked agent has the same blocked and ignored signals as under any other agent."""
    tell = "print([line for line in open('/proc/self/status') if line.startswith(('SigBlk', 'SigIgn'))])"
    alone = Agent()

    logs = []
    for agent in (None, alone):
        start, agent = run(tell, agent=agent)
        agent.wait()
        logs.append(start.folder.log_path(1).read_text())

    alone.process.wait(TIMEOUT_S)
    assert "SigBlk" in logs[0]
    assert logs[0] == logs[1]


def test_a_forked_agent_says_that_a_command_cannot_be_started(
    home: Home, spawner: AgentSpawner, tmp_path: Path
) -> None:
    """A forked agent reports a command that cannot be executed, as any other agent does."""
    broken = tmp_path / "broken"
    broken.write_text("no program")
    broken.chmod(0o700)
    start = begin(home.root, [str(broken)])

    agent = Agent(spawner)

    with pytest.raises(CommandError):
        agent.start(start)

    agent.close()
    start.withdraw()


def test_forked_agents_hold_nothing_of_each_other(run: Run, spawner: AgentSpawner, tmp_path: Path) -> None:
    """A forked agent inherits no lock or log file of a sibling, and each has its own session."""
    first, second = run(WAITING, "1")[0], run(WAITING, "2")[0]
    child_of_script(tmp_path, "2")

    opened = {Path(file.path).name for file in agent_of(second).open_files()}
    sessions = {os.getsid(process.pid) for process in (process_of(spawner), agent_of(first), agent_of(second))}

    assert {"1.supervised", "1.log"} == opened
    assert {Path(file.path).parent.name for file in agent_of(second).open_files()} == {"2"}
    assert len(sessions) == 3


def test_attempts_outlive_the_spawner_and_another_takes_its_place(
    run: Run, spawner: AgentSpawner, tmp_path: Path
) -> None:
    """Attempts outlive a killed spawner and report their ends, and a new spawner replaces it."""
    _, first = run(WAITING, "1")
    child_of_script(tmp_path, "1")
    process = process_of(spawner)

    process.kill()
    process.wait(TIMEOUT_S)
    _, second = run("pass")
    (tmp_path / "go").touch()

    assert (first.wait(), second.wait()) == (CommandEnded(0), CommandEnded(0))
    assert process_of(spawner) != process


def test_an_agent_that_the_spawner_never_forked_is_forked_by_the_next(run: Run, spawner: AgentSpawner) -> None:
    """If the spawner is killed before it forks a requested agent, the next spawner forks it."""
    run("pass")[1].wait()
    process = process_of(spawner)
    process.suspend()
    with ThreadPoolExecutor() as threads:
        forked = threads.submit(Agent, spawner)
        process.kill()
        agent = forked.result(TIMEOUT_S)

    start, _ = run("print('ran')", agent=agent)

    assert agent.wait() == CommandEnded(0)
    assert start.folder.log_path(1).read_text() == "ran\n"


def test_a_killed_forked_agent_leaves_no_script(run: Run, tmp_path: Path) -> None:
    """When a forked agent is killed, its guardian ends the script."""
    start, agent = run(WAITING, "1")
    child = child_of_script(tmp_path, "1")

    kill(start.folder, 1)

    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    assert agent.wait() == CommandEnded(None)


def test_a_command_that_its_starter_kills_leaves_nothing(run: Run, tmp_path: Path) -> None:
    """A command killed by its starter leaves no process, and its agent records how it ended."""
    start, agent = run(WAITING, "1")
    child = child_of_script(tmp_path, "1")

    agent.signal(signal.SIGKILL)
    ended = agent.wait()

    record = start.folder.read_exit(1)
    assert ended == CommandEnded(-signal.SIGKILL)
    assert record is not None
    assert record.code == -signal.SIGKILL
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_signal_that_comes_before_the_command_reaches_it(run: Run, spawner: AgentSpawner) -> None:
    """A signal sent before the command has started reaches it once it starts."""
    agent = Agent(spawner)
    agent.signal(signal.SIGTERM)

    run("import time; time.sleep(600)", agent=agent)

    assert agent.wait() == CommandEnded(-signal.SIGTERM)


def test_the_spawner_leaves_no_zombies(run: Run, spawner: AgentSpawner) -> None:
    """The spawner leaves no zombies, however many agents it has forked."""
    for _ in range(3):
        run("pass")[1].wait()

    wait_for(lambda: process_of(spawner).children() == [])


def test_the_spawner_ends_with_its_starter(tmp_path: Path, run_script: Callable[..., tuple[int, str, str]]) -> None:
    """The spawner ends with its starter, even if the starter is killed."""
    source = """
        import os, signal, socket
        from core_sdk._execution.agent.starting import AgentSpawner
        from core_sdk._execution.agent.starting import Agent
        spawner = AgentSpawner()
        agent = Agent(spawner)
        print(spawner.process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """

    status, output, _ = run_script(source)

    assert status == -signal.SIGKILL
    try:
        wait_for(lambda: not psutil.pid_exists(int(output)) or psutil.Process(int(output)).status() == "zombie")
    finally:
        kill_tree(int(output))
