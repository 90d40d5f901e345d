"""No master outlives its test."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from execution.master.ray_clusters import cli, ray_on_hosts
from execution.workers.engines import ray_address

from core_sdk._execution.experiments.calling import call_running
from core_sdk._execution.experiments.protocol import Down
from core_sdk._home import Home
from core_sdk.errors import MasterError

# A cluster beside that of the other tests: an attempt outlives its master, and would hold a place that they count.
__all__ = ["cli", "end_of_masters", "ray_address", "ray_on_hosts", "this_python"]


@pytest.fixture(autouse=True)
def this_python() -> None:
    """Makes `python` the interpreter of the tests."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def end_of_masters(home: Home) -> Iterator[None]:
    yield
    with contextlib.suppress(MasterError):
        call_running(home.root, Down())
    for process in psutil.process_iter(["environ", "cmdline"]):
        environment = process.info["environ"] or {}
        if environment.get("CORE_SDK_HOME") == str(home.root):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
