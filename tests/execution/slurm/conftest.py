"""What the tests of Slurm share: a cluster of two nodes, and a place for a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from execution.slurm.cluster import Cluster, slurm_cluster
from execution.slurm.trainings import write_script


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    """A cluster of two nodes for all tests that do not kill nodes."""
    with slurm_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A job's working directory, with its script."""
    directory = tmp_path / "job"
    directory.mkdir()
    write_script(directory)
    return directory
