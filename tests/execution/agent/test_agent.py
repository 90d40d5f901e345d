"""The agent outlives the command that has started it, and its script does not outlive the agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from interfaces.cli.commands import Cli, StartCli, WriteScript
from processes import TIMEOUT_S, is_living, wait_for
from promises import promise

from core_sdk._execution.agent.starting import Agent
from core_sdk._home import Home

COUNTING = """
    import pathlib, time
    from core_sdk import core
    with core.init() as context:
        print("started", flush=True)
        while not context.preempt.should_preempt() and not pathlib.Path("go").exists():
            time.sleep(0.01)
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "state").touch()
        print("saved")
"""


WAITING = """
    import pathlib, time
    print("started")
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


def agent_of(pid: int) -> psutil.Process:
    """Returns the agent that a command has started."""
    [agent] = [child for child in psutil.Process(pid).children() if "core_sdk._execution.agent" in child.cmdline()]
    return agent


def state(cli: Cli) -> str:
    (listed,) = json.loads(cli("trial", "list", "--json").output)
    return str(listed["state"])


@promise("command-killed")
def test_a_killed_command_loses_neither_the_output_nor_the_exit_status(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """A trial whose command was killed runs on, and its output and exit status are recorded."""
    script = write_script(COUNTING + "    raise SystemExit(3)")
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")

    run.process.kill()
    run.process.wait()
    running = state(cli)
    (tmp_path / "go").touch()
    wait_for(lambda: home.trial(1).running_attempt() is None)

    exit_record = home.trial(1).read_exit(1)
    assert running == "ACTIVE"
    assert exit_record is not None
    assert exit_record.code == 3
    assert home.trial(1).log_path(1).read_text() == "started\nsaved\n"
    assert state(cli) == "ERROR"


@promise("command-killed")
def test_a_trial_whose_command_was_killed_can_be_paused_and_resumed(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """A trial whose command was killed can be paused and resumed as usual."""
    run = start_cli("run", "--", sys.executable, str(write_script(COUNTING)))
    run.read_until("started")
    run.process.kill()
    run.process.wait()

    paused = cli("trial", "pause", "1", "--wait")
    was = state(cli)
    (tmp_path / "go").touch()
    resumed = cli("trial", "resume", "1")

    assert (paused.status, was) == (0, "PAUSED")
    assert "continuing from checkpoint" in resumed.errors
    assert state(cli) == "COMPLETED"


@promise("one-script-at-a-time")
def test_a_script_that_has_not_come_to_its_init_cannot_be_started_twice(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """While a script has not yet called init(), its agent's lock prevents a second start, even without its command."""
    script = write_script(WAITING)
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    run.process.kill()
    run.process.wait()

    refused = cli("trial", "resume", "1")
    (tmp_path / "go").touch()
    wait_for(lambda: home.trial(1).running_attempt() is None)

    assert refused.status == 1
    assert "attempt 1 is running" in refused.errors


@promise("one-script-at-a-time")
def test_a_killed_agent_leaves_no_script(start_cli: StartCli, cli: Cli, write_script: WriteScript) -> None:
    """When an agent is killed, its script and all processes of it are ended, and the command reports the death."""
    script = write_script(
        """
        import subprocess, time
        child = subprocess.Popen(["sleep", "600"])
        daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print("started")
        time.sleep(600)
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    agent = agent_of(run.process.pid)
    scripts = [
        each for each in agent.children(recursive=True) if "_guardian_process.py" not in " ".join(each.cmdline())
    ]

    agent.kill()
    status, _, errors = run.wait()
    _, alive = psutil.wait_procs(scripts, timeout=TIMEOUT_S)

    assert len(scripts) == 3
    assert alive == []
    assert status == 1
    assert "its process ended without a word" in errors
    assert state(cli) == "ERROR"


def test_what_a_script_leaves_behind_is_ended_with_it(
    home: Home, cli: Cli, write_script: WriteScript, tmp_path: Path
) -> None:
    """The processes that a script leaves behind end with it, and are named; what has given up its mark lives on."""
    script = write_script(
        """
        import pathlib, subprocess, sys
        left = subprocess.Popen(["sleep", "600"], start_new_session=True)
        daemon = "while [ ! -e go ]; do sleep 0.05; done; echo from the daemon"
        own = subprocess.Popen(["sh", "-c", daemon], start_new_session=True, env={"PATH": "/usr/bin:/bin"})
        pathlib.Path("left").write_text(str(left.pid))
        print("done")
        """
    )

    run = cli("run", "--", sys.executable, str(script))
    left = int((tmp_path / "left").read_text())
    is_left = is_living(left)
    running = home.trial(1).running_attempt()
    (tmp_path / "go").touch()
    log = home.trial(1).log_path(1)
    wait_for(lambda: "from the daemon" in log.read_text())

    named = f"core-sdk: the command has left processes behind, which are ended: sleep 600 (pid {left})"
    assert (run.status, run.output.splitlines()) == (0, ["done", named])
    assert not is_left
    assert running is None


def test_all_processes_of_a_script_get_ctrl_c_once(start_cli: StartCli, write_script: WriteScript) -> None:
    """All processes of a script, such as a shell and its Python, get Ctrl-C exactly once."""
    script = write_script(
        """
        import signal, time
        interrupts = []
        signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
        print("started")
        while not interrupts: time.sleep(0.01)
        time.sleep(0.3)
        print("interrupts", len(interrupts))
        """
    )
    run = start_cli("run", "--", "sh", "-c", f"{sys.executable} {script}; echo the shell goes on")
    run.read_until("started")

    run.process.send_signal(signal.SIGINT)
    status, output, _ = run.wait()

    assert output.splitlines()[0] == "interrupts 1"
    assert status == 130


def test_other_signals_reach_the_script(start_cli: StartCli, write_script: WriteScript) -> None:
    """Other signals are passed on to the script at once, and its death by one is reported at the end."""
    run = start_cli("run", "--", sys.executable, str(write_script("import time; print('started'); time.sleep(600)")))
    run.read_until("started")

    run.process.send_signal(signal.SIGQUIT)
    status, _, errors = run.wait()

    assert status == 128 + signal.SIGQUIT
    assert "SIGQUIT was handed on to the command of trial 1: waiting for it to end" in errors
    assert "killed by SIGQUIT" in errors


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_is_ignored_stays_ignored(start_cli: StartCli, write_script: WriteScript, number: int) -> None:
    """A signal that the command ignores, such as SIGHUP after `nohup`, is ignored in the script too."""
    script = write_script(f"import signal; print(signal.getsignal({int(number)}) == signal.SIG_IGN)")

    before = signal.signal(number, signal.SIG_IGN)
    try:
        run = start_cli("run", "--", sys.executable, str(script))
    finally:
        signal.signal(number, before)

    assert run.wait()[1] == "True\n"


def test_ctrl_z_stops_the_script_with_the_command(
    home: Home, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """Ctrl-Z stops the script together with the command, and `fg` lets both go on."""
    script = write_script(WAITING)
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    [running] = [each for each in agent_of(run.process.pid).children() if str(script) in each.cmdline()]

    run.process.send_signal(signal.SIGTSTP)
    wait_for(lambda: running.status() == psutil.STATUS_STOPPED)
    wait_for(lambda: psutil.Process(run.process.pid).status() == psutil.STATUS_STOPPED)
    run.process.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()

    assert run.wait()[0] == 0


def test_a_working_directory_shadows_none_of_our_modules(
    home: Home, cli: Cli, write_script: WriteScript, tmp_path: Path
) -> None:
    """Files in the working directory named like modules, such as `json.py`, are not imported by the agent."""
    for name in ("json", "core_sdk", "socket", "selectors"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")

    run = subprocess.run(
        [str(Path(sys.executable).with_name("core-sdk")), "run", "--", "echo", "fine"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )

    assert (run.returncode, run.stdout) == (0, "fine\n"), run.stderr


def test_an_agent_without_an_attempt_ends() -> None:
    """An agent ends when its starter closes it without giving it an attempt."""
    agent = Agent()

    agent.close()

    assert agent.process.wait(TIMEOUT_S) == 0


def test_the_agent_is_light() -> None:
    """The agent, which lives as long as the training, imports no large libraries."""
    heavy = ("torch", "sqlite3", "click", "rich", "requests", "google.cloud")
    script = f"import sys, core_sdk._execution.agent.__main__; print([name for name in {heavy} if name in sys.modules])"

    imported = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=TIMEOUT_S)

    assert imported.stdout == "[]\n", imported.stderr
