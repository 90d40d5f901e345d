"""A home with a master, which runs in this process and ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from masters import running_master

from core_sdk._home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "home")


@pytest.fixture
def master(home: Home) -> Iterator[None]:
    with running_master(home):
        yield
