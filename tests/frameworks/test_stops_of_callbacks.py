"""Every callback hears every kind of stop within two reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

TIMEOUT_S = 300
SCRIPT = Path(__file__).with_name("callback_stops.py")


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("saved", [pytest.param((), id="nothing saved"), pytest.param(("saved",), id="saved")])
@pytest.mark.parametrize(
    "shape",
    ["lightning", "lightning_in_a_function", "transformers", "accelerate"],
)
def test_a_stop_ends_every_callback_within_two_reports(
    callbacks: FrameworkEnvironment, tmp_path: Path, shape: str, saved: tuple[str, ...]
) -> None:
    """Each kind of stop ends a training with callbacks within two reports, with a checkpoint and the right state."""
    ended = callbacks.run(str(SCRIPT), shape, *saved, cwd=tmp_path, timeout_s=TIMEOUT_S)

    assert ended.returncode == 0, ended.stdout + ended.stderr
