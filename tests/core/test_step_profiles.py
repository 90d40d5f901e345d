"""Steps of a running training are traced without a change of its script."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Script, wait_for

from core_sdk._home import Home

TRAINING = """
import sys, time
if sys.argv[1] == "torch":
    import torch
from core_sdk import core

with core.init() as context:
    print("begun", flush=True)
    while not context.preempt.should_preempt():
        if sys.argv[1] == "torch":
            torch.ones(8) @ torch.ones(8)
        time.sleep(0.02)
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments]
    return subprocess.run(start, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def begun(start_script: Callable[..., Script]) -> Callable[[str], Script]:
    def begin(kind: str) -> Script:
        script = start_script(TRAINING, kind)
        script.read_until("begun")
        return script

    return begin


def test_steps_of_a_running_training_are_traced(begun: Callable[[str], Script], home: Home, tmp_path: Path) -> None:
    """The trace has the operations of so many steps, and the training goes on."""
    script = begun("torch")

    traced = command("trial", "profile", "1", "--steps", "3", "--output", str(tmp_path / "trace.json.gz"))

    assert (traced.returncode, traced.stderr) == (0, "")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    assert sum(each.get("name") == "aten::dot" for each in events) >= 3
    assert len(list(home.trial(1).profiles_path.iterdir())) == 1
    command("trial", "pause", "1")
    assert script.wait()[0] == 0


def test_a_script_without_torch_says_so(begun: Callable[[str], Script], home: Home) -> None:
    script = begun("none")

    traced = command("trial", "profile", "1")

    assert traced.returncode == 1
    assert "the script has not imported torch" in traced.stderr
    command("trial", "pause", "1")
    script.wait()
    wait_for(lambda: home.trial(1).running_attempt() is None)
    assert command("trial", "profile", "1").returncode != 0
