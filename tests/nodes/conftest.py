"""What trainings over several hosts need in each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_sdk.client import Trial, get_trial


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """All launchers' working directory, with the home that they share; on every host, as are all files."""
    # Short, for the sockets of the launchers, which are in the temporary directory.
    monkeypatch.setenv("TMPDIR", "/tmp")
    with tempfile.TemporaryDirectory(prefix="nodes") as name:
        monkeypatch.setenv("CORE_SDK_HOME", str(Path(name) / "home"))
        yield Path(name)


class TheTrial:
    """The trial of a training that has begun exactly one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> Trial:
        runs = self._folder / "home" / "runs"
        assert [path.name for path in runs.iterdir() if path.name.isdigit()] == ["1"]
        return get_trial(1)


@pytest.fixture
def the_trial(folder: Path) -> TheTrial:
    return TheTrial(folder)
