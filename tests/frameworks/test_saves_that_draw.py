"""A save of a framework may draw random numbers, and leaves no trace of that."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.environments import FrameworkEnvironment

TIMEOUT_S = 300


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("library", ["lightning", "transformers", "accelerate"])
def test_a_save_leaves_no_trace_in_the_generators(
    callbacks: FrameworkEnvironment, tmp_path: Path, library: str
) -> None:
    """A training draws the same numbers with saves that draw, without any, and after a stop or a death at a save."""
    program = str(Path(__file__).with_name("drawing_saves.py"))
    ended = callbacks.run(program, library, cwd=tmp_path, timeout_s=TIMEOUT_S)

    assert ended.returncode == 0, ended.stdout + ended.stderr
