"""A training that was stopped anywhere, and resumed, has the results and the reports of an undisturbed one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

from core_sdk.processes import STOPPED

TIMEOUT_S = 2400


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("how_much", ["sample", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("script", ["lightning_matrix.py", "transformers_matrix.py"])
def test_stops_change_nothing(callbacks: FrameworkEnvironment, tmp_path: Path, script: str, how_much: str) -> None:
    """Weights, the best models, early stopping, schedules, and each report."""
    ended = subprocess.run(
        [str(callbacks.python), str(Path(__file__).with_name(script)), how_much],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **callbacks.variables()},
    )

    # A process exits so if one of its jobs has been stopped.
    assert ended.returncode in (0, STOPPED), ended.stdout + ended.stderr
