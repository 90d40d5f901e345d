"""Ranks in the test's own directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from core.rank_processes import Ranks


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Starts ranks of one trial; what still runs at the end of the test is killed."""
    ranks = Ranks(tmp_path)
    yield ranks
    ranks.kill()
