"""A training that was stopped anywhere, and resumed, has the results and the reports of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

TIMEOUT_S = 2400


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("how_much", ["sample", "all"])
@pytest.mark.parametrize("script", ["lightning_matrix.py", "transformers_matrix.py"])
def test_stops_change_nothing(callbacks: FrameworkEnvironment, tmp_path: Path, script: str, how_much: str) -> None:
    """Stops at any step change neither weights, best models, early stopping or schedules nor any report."""
    program = str(Path(__file__).with_name(script))
    ended = callbacks.run(program, how_much, cwd=tmp_path, timeout_s=TIMEOUT_S)

    # The stopped jobs of the program have all been begun again by it, and have completed.
    assert ended.returncode == 0, ended.stdout + ended.stderr
