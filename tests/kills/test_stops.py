"""Stops from outside at random moments: each leaves a paused trial with a checkpoint of its last step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def stop_trainings(num_stops: int, seed: int) -> str:
    """Runs the benchmark and returns its counts. It exits with 1 if any stop was not kept."""
    command = [sys.executable, str(BENCHMARKS / "stops.py"), "--stops", str(num_stops), "--seed", str(seed)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_no_stop_loses_a_step() -> None:
    """Stops of a process, of one of two ranks and of a launcher lose no step."""
    assert "4 stops: 100.00% kept" in stop_trainings(4, seed=1)


@pytest.mark.timeout(600)
def test_forty_stops_lose_no_step() -> None:
    """Forty stops of all kinds, at random moments of a training, lose no step."""
    assert "40 stops: 100.00% kept" in stop_trainings(40, seed=2)
