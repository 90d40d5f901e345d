"""`kill -9` at random moments: what was acknowledged is there, once and whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from promises import promise

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def kill_trainings(num_kills: int) -> str:
    """Runs the benchmark and returns its counts. It exits with 1 for one lost report or incomplete checkpoint."""
    command = [sys.executable, str(BENCHMARKS / "kills.py"), "--kills", str(num_kills)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@promise("reports-survive", "checkpoint-whole")
def test_no_kill_loses_a_report_or_leaves_half_a_checkpoint() -> None:
    """Forty kills lose no report and leave no incomplete checkpoint."""
    assert "40 kills" in kill_trainings(40)


@pytest.mark.timeout(600)
def test_a_thousand_kills_lose_nothing() -> None:
    """A thousand kills lose no report and leave no incomplete checkpoint."""
    assert "1000 kills" in kill_trainings(1000)
