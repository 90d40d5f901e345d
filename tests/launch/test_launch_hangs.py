"""What a launcher says while its ranks wait for something that will not come, and what it keeps to itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launches import StartLaunch
from processes import TIMEOUT_S, wait_for


def test_a_lock_that_a_killed_build_has_left_is_named(
    start_launch: StartLaunch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that a killed extension build left is named, since ranks would wait for it for ever."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    for name in ("cpu_adam", "fused_lamb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
    source = """
        import pathlib, sys, time
        lock = pathlib.Path(sys.argv[1])
        while lock.exists(): time.sleep(0.1)
    """
    lock = tmp_path / "cpu_adam" / "lock"

    with (tmp_path / "fused_lamb" / "lock").open():
        launch = start_launch(source, str(lock))
        wait_for(lambda: str(lock) in launch.errors)
    lock.unlink()

    ended = launch.wait()
    assert ended.code == 0
    assert f"{lock} is 0 min old, and no process of this machine builds there" in ended.stderr
    assert f"rm {lock}" in ended.stderr
    assert "fused_lamb" not in ended.stderr


_PAUSING = """\
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up as one of", os.environ["WORLD_SIZE"], flush=True)
signal.pause()
"""


def test_nodes_that_stop_together_show_nothing_of_torchs(tmp_path: Path, free_port: int) -> None:
    """The last one finds the meeting place gone, as it should be, of which torch writes the stack of its C++ code."""
    (tmp_path / "train.py").write_text(_PAUSING)
    rendezvous = f"--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:{free_port} --rdzv-conf=last_call_timeout=5"
    line = f"-m launch.torch_distributed --nnodes=1:2 --nproc-per-node=1 --max-restarts=1 --rdzv-id=x {rendezvous}"
    command = [sys.executable, *line.split(), "train.py"]

    nodes = []
    for number in range(2):
        with (tmp_path / f"{number}.out").open("wb") as output, (tmp_path / f"{number}.err").open("wb") as errors:
            nodes.append(subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=errors))
    # The first node may have begun alone, and then begins again with the second one.
    wait_for(lambda: all("up as one of 2" in (tmp_path / f"{number}.out").read_text() for number in range(2)))
    for node in nodes:
        os.kill(node.pid, signal.SIGTERM)

    assert [node.wait(TIMEOUT_S) for node in nodes] == [75, 75]
    lines = [line for number in range(2) for line in (tmp_path / f"{number}.err").read_text().splitlines()]
    assert [line for line in lines if not line.startswith("[core-sdk] stop")] == []
