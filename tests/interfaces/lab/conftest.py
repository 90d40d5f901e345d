"""A lab, and whoever asks its door."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from interfaces.lab.lab_visitor import LabVisitor


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabVisitor]:
    visitor = LabVisitor(tmp_path / "lab")
    yield visitor
    visitor.close()
