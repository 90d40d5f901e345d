"""What the tests of the ranks' channel share: groups of threads, and groups of processes."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from distributed.cells import Stage
from distributed.ranks import Nursery, RankGroup, Threads


class StartRanks(Protocol):
    def __call__(self, source: str, size: int = 3, **keywords: object) -> RankGroup: ...


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.close()


@pytest.fixture
def start_ranks(nursery: Nursery, tmp_path: Path) -> Iterator[StartRanks]:
    """Starts a script on several ranks; what still runs at the end of the test is killed."""
    yield functools.partial(nursery.start, tmp_path)
    nursery.end_all()


@pytest.fixture
def threads(tmp_path: Path) -> Threads:
    return Threads(tmp_path)


@pytest.fixture
def stage(nursery: Nursery, tmp_path: Path) -> Stage:
    """Starts ranks on several hosts."""
    return Stage(nursery, tmp_path)


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of this test's own, with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
