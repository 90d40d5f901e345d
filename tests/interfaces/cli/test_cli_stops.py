"""A stop reaches the script, and nothing of what it still saves and prints is lost, whoever else gets the signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from interfaces.cli.commands import COMMAND, StartCli, WriteScript
from processes import TIMEOUT_S, wait_for

from core_sdk._execution.agent.starting import Agent
from core_sdk._home import Home
from core_sdk._home.attempts.starting import begin
from core_sdk.client import Tracker

SAVING = """
    import os, time
    from core_sdk import core

    ranks = core.DistributedContext.from_torch_distributed() if "RANK" in os.environ else None
    with core.init(distributed=ranks) as context:
        context.preempt.should_preempt()
        print("started", flush=True)
        while not context.preempt.should_preempt():
            time.sleep(0.01)
        print("stopping", flush=True)
        with context.checkpoint.store_path({"steps_completed": 1}, shard=True) as (path, _):
            if context.distributed.rank == 0:
                (path / "weights").write_text("1")
        print("saved", flush=True)
    print("left", flush=True)
"""
FILLING = 'for _ in range(1000): print("x" * 999, flush=True)'
FILLED = 1000 * ("x" * 999 + "\n")
SAID = ["started", "stopping", "saved", "left"]
LAUNCHER = ("-m", "launch.torch_distributed", "--nproc-per-node", "2", "--")
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def agent_of(run: psutil.Process) -> psutil.Process:
    """Returns the agent, the parent of the script, which writes the script's output to the log."""
    [agent] = [child for child in run.children() if "core_sdk._execution.agent" in child.cmdline()]
    return agent


@pytest.mark.parametrize("launcher", [(), LAUNCHER], ids=["script", "launcher"])
@pytest.mark.parametrize("receivers", ["all by SIGTERM", "all by SIGUSR1", "the agent by all"])
def test_what_a_script_saves_and_prints_after_a_stop_is_kept(
    home: Home,
    start_cli: StartCli,
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
    launcher: tuple[str, ...],
    receivers: str,
) -> None:
    """A script's checkpoint and output after a stop are kept, even if every process of the step gets the signal."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("CORE_SDK_JOB_ID", "")
    start = start_cli("run", "--", sys.executable, *launcher, str(write_script(SAVING)))
    log = home.root / "runs" / "1" / "1.log"
    wait_for(lambda: log.exists() and log.read_text().count("started") == (2 if launcher else 1))
    run = psutil.Process(start.process.pid)

    match receivers:
        case "all by SIGTERM" | "all by SIGUSR1":
            for process in [*run.children(recursive=True), run]:
                with contextlib.suppress(psutil.NoSuchProcess):  # one may have ended since we looked
                    process.send_signal(signal.SIGTERM if receivers.endswith("SIGTERM") else signal.SIGUSR1)
        case _:
            for number in ASKING:
                agent_of(run).send_signal(number)
            run.send_signal(signal.SIGTERM)
    status, output, errors = start.wait()

    for prefix in ["[rank=0] ", "[rank=1] "] if launcher else [""]:
        lines = [line.removeprefix(prefix) for line in log.read_text().splitlines() if line.startswith(prefix)]
        assert [line for line in lines if line in SAID] == SAID, errors
    with Tracker().index() as index:
        assert index.trial(1).state == "PAUSED"
        assert len(index.checkpoints(trial_id=1)) == 1
    assert status == 75
    assert output == log.read_text()


def test_ranks_that_have_saved_under_torchrun_are_paused(
    home: Home, start_cli: StartCli, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGTERM to every process makes torchrun exit with 1, and the trial is PAUSED, as its ranks have recorded."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    start = start_cli("run", "--", sys.executable, *torchrun, str(write_script(SAVING)))
    log = home.root / "runs" / "1" / "1.log"
    wait_for(lambda: log.exists() and log.read_text().count("started") == 2)
    run = psutil.Process(start.process.pid)

    for process in [*run.children(recursive=True), run]:
        with contextlib.suppress(psutil.NoSuchProcess):  # one may have ended since we looked
            process.send_signal(signal.SIGTERM)
    status, _, errors = start.wait()

    exit_record = home.trial(1).read_exit(1)
    assert exit_record is not None and exit_record.code == 1
    with Tracker().index() as index:
        assert index.trial(1).state == "PAUSED"
        assert len(index.checkpoints(trial_id=1)) == 1
    assert status == 75, errors


def test_a_signal_at_the_very_start_does_not_end_the_agent(home: Home, tmp_path: Path) -> None:
    """A signal that arrives before the agent's first instruction does not end it."""
    agent = Agent()

    for number in ASKING:
        agent.process.send_signal(number)
    start = begin(home.root, ["sh", "-c", "echo kept"])
    with Path(os.devnull).open() as nothing:
        agent.start(start, stdin=nothing.fileno())
    ended = agent.wait()
    agent.close()

    assert ended.code == 0
    assert start.folder.log_path(1).read_text() == "kept\n"
    assert agent.process.wait(TIMEOUT_S) == 0


@pytest.fixture
def stalled(home: Home, write_script: WriteScript) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `core-sdk run` with its output in a full pipe that nobody reads."""
    script = write_script(SAVING.replace('print("started", flush=True)', FILLING))
    read, write = os.pipe()
    arguments = [*COMMAND, "run", "--", sys.executable, str(script)]
    run = subprocess.Popen(arguments, stdout=write, stderr=write, start_new_session=True)
    os.close(write)
    log = home.root / "runs" / "1" / "1.log"
    try:
        wait_for(lambda: log.exists() and log.stat().st_size >= len(FILLED))
        yield run
    finally:
        run.kill()
        run.wait()
        print(os.read(read, 1 << 16).decode())
        os.close(read)


def test_a_reader_who_stalls_does_not_hold_up_a_stop(home: Home, stalled: subprocess.Popen[bytes]) -> None:
    """The training saves and is recorded as paused, and the command ends, with the log whole."""
    stalled.terminate()

    assert stalled.wait(TIMEOUT_S) == 75
    assert home.trial(1).log_path(1).read_text() == FILLED + "".join(f"{line}\n" for line in SAID[1:])
    with Tracker().index() as index:
        assert index.trial(1).state == "PAUSED"
        assert len(index.checkpoints(trial_id=1)) == 1


def test_a_reader_who_stalls_does_not_keep_an_ended_trial_running(home: Home, stalled: subprocess.Popen[bytes]) -> None:
    """A stalled reader delays the command but not the end of the trial."""
    [script] = [
        child for child in agent_of(psutil.Process(stalled.pid)).children() if "train.py" in child.cmdline()[-1]
    ]

    script.kill()
    wait_for(lambda: home.trial(1).running_attempt() is None)
    was_waiting = stalled.poll() is None
    stalled.send_signal(signal.SIGINT)

    assert was_waiting
    assert stalled.wait(TIMEOUT_S) == 128 + signal.SIGKILL


@pytest.mark.parametrize(("is_paused", "status"), [(True, 75), (False, 0)])
def test_signals_after_the_end_of_the_script_do_not_change_the_status(
    start_cli: StartCli, write_script: WriteScript, tmp_path: Path, is_paused: bool, status: int
) -> None:
    """The command exits with the status for its trial, however often it is signalled after its script has ended."""
    script = write_script(
        f"""
        import pathlib, time
        from core_sdk import core
        with core.init() as context:
            print("started", flush=True)
            while {is_paused} and not context.preempt.should_preempt():
                time.sleep(0.01)
        pathlib.Path("ended").touch()
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    if is_paused:
        run.process.send_signal(signal.SIGTERM)
    wait_for((tmp_path / "ended").exists)

    while run.process.poll() is None:
        run.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(0.01)

    assert run.wait()[0] == status
