"""The example with a model that is split over ranks learns what it promises, also if it goes on with fewer of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_for

from core_sdk._home import Home

# It trains, with PyTorch, for half a minute.
pytestmark = pytest.mark.timeout(600)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "8_language_model.py"
CORE_SDK = Path(sys.executable).with_name("core-sdk")
TIMEOUT_S = 400

PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""


def launcher(num_ranks: int) -> list[str]:
    return [sys.executable, "-m", "launch.torch_distributed", f"--nproc-per-node={num_ranks}", "--"]


def test_what_two_ranks_have_learnt_one_rank_goes_on_with(home: Home) -> None:
    """The language model is paused on two ranks, and reaches the stated loss after a resume on one."""
    script = [sys.executable, str(EXAMPLE)]
    with subprocess.Popen([str(CORE_SDK), "run", "--", *launcher(2), *script]) as process:
        wait_for(lambda: any(home.root.glob("checkpoints/*/metadata.json")), timeout_s=TIMEOUT_S)
        subprocess.run([str(CORE_SDK), "trial", "pause", "1"], check=True, timeout=TIMEOUT_S)
        paused = process.wait(TIMEOUT_S)

    resumed = subprocess.run(
        [str(CORE_SDK), "trial", "resume", "1", "--", *launcher(1), *script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert paused == PAUSED
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    told = re.search(r"loss (\S+) per character \(expected: (\S+) or less\)", resumed.stdout)
    assert told, resumed.stdout
    assert float(told[1]) <= float(told[2])
    shards = {path.name for path in home.root.glob("checkpoints/*/sharded_tensors.*.pt")}
    assert shards == {"sharded_tensors.0.pt", "sharded_tensors.1.pt"}
