"""The engines that the tests of worker groups run on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workers.programs import Programs

LOCAL = """
from core_sdk.workers import LocalEngine

def engine(**options):
    return LocalEngine(**options)
"""


@pytest.fixture(params=["local"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    """Programs on this engine; they are killed at the end of the test if they still run."""
    programs = Programs("local", Path(sys.executable), LOCAL, tmp_path, {})
    yield programs
    for program in programs.started:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()
