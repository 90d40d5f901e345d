"""Why a training under a launcher failed is told by its trial too, also where its script could not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launches import RunLaunch, StartLaunch

from core_sdk._ground.records import ExitRecord
from core_sdk._home.states import error_told
from core_sdk.experimental.client import get_trial

_KILLED = "rank {} was killed by SIGKILL: perhaps by the kernel, for memory"
_SOURCE = """
import os, signal, sys, time
from core_sdk import core
distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed) as context:
    distributed.allgather(1)
    if distributed.rank == int(sys.argv[1]):
        {fails}
    {waits}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def _source(fails: str = "os.kill(os.getpid(), signal.SIGKILL)", waits: str = "time.sleep(120)") -> str:
    return _SOURCE.format(fails=fails, waits=waits)


def _told() -> tuple[str, str]:
    trial = get_trial(1)
    return trial.state.name, trial.reason


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("waits", ["time.sleep(120)", "distributed.allgather(2)"])
def test_a_killed_rank_is_named_by_its_trial(rank: int, waits: str, run_launch: RunLaunch) -> None:
    """The trial's reason names the killed rank, even if the chief cannot record it."""
    ended = run_launch(_source(waits=waits), str(rank))

    assert (ended.code, _told()) == (137, ("ERROR", _KILLED.format(rank)))


def test_a_status_that_no_context_has_seen_is_told(run_launch: RunLaunch) -> None:
    """If a rank ends by os._exit(), the trial's reason has its exit status."""
    run_launch(_source(fails="os._exit(17)"), "1")

    assert _told() == ("ERROR", "rank 1 exited with status 17")


def test_what_the_script_says_of_its_error_stands(run_launch: RunLaunch) -> None:
    """An error that the script records is the trial's reason."""
    run_launch(_source(fails="raise ValueError('boom')", waits="distributed.allgather(2)"), "0")

    assert _told() == ("ERROR", "ValueError: boom")


def test_a_stop_that_ranks_die_of_is_told(start_launch: StartLaunch) -> None:
    """If ranks die of a stop, the trial's reason says so."""
    launch = start_launch(_source(fails="pass", waits="print('ready', flush=True); time.sleep(120)"), "0")
    launch.read_until("[rank=0] ready", "[rank=1] ready")

    launch.send(signal.SIGTERM)

    assert launch.wait().code == 143
    assert _told() == ("ERROR", "ranks 0, 1 died of SIGTERM, which was handed on")


def test_ctrl_c_cancels_the_trial(start_launch: StartLaunch) -> None:
    """Ctrl-C cancels the trial and gives the exit code 130."""
    launch = start_launch(_source(fails="pass", waits="print('ready', flush=True); time.sleep(120)"), "0")
    launch.read_until("[rank=0] ready", "[rank=1] ready")

    launch.send(signal.SIGINT)

    assert launch.wait().code == 130
    assert _told()[0] == "CANCELED"


def test_core_sdk_run_keeps_what_its_launcher_told(tmp_path: Path) -> None:
    """`core-sdk run` prints the reason that its launcher recorded."""
    (tmp_path / "train.py").write_text(_source())
    launcher = [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--", "train.py", "1"]
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", *launcher]

    ended = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 137
    assert _told() == ("ERROR", _KILLED.format(1))
    assert f"trial 1 failed ({_KILLED.format(1)})" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("error", "end", "told"),
    [
        (None, None, None),
        ("ValueError: own", None, "ValueError: own"),
        (None, ExitRecord(time=0.0, code=1), None),
        (None, ExitRecord(time=0.0, code=17, reason="rank 1 exited"), "rank 1 exited"),
        ("lost peer\n", ExitRecord(time=0.0, code=137, reason="rank 1 was killed"), "lost peer\nrank 1 was killed"),
        ("a\nrank 1 was killed", ExitRecord(time=0.0, code=137, reason="rank 1 was killed"), "a\nrank 1 was killed"),
        ("ValueError: own", ExitRecord(time=0.0, code=1, reason="rank 0 raised it"), "ValueError: own"),
    ],
)
def test_a_kill_stands_above_what_the_script_made_of_it(
    error: str | None, end: ExitRecord | None, told: str | None
) -> None:
    """A recorded error of the script comes before a kill, and a kill before other reasons."""
    assert error_told(error, end) == told
