"""The engines that tests with workers run on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from execution.workers.programs import Programs
from frameworks.environments import environment
from hosts.hosts import Host
from ports import reserved_port
from processes import kill_tree

NUM_CPUS = 8
# Ray gives up after 30 seconds if it gets too little of the processor as it starts.
_MORE_STARTS = 2
VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise Ray demands a token if the user has ever run it.
    "RAY_AUTH_MODE": "disabled",
}

LOCAL = """
from core_sdk._execution.workers import LocalEngine

def engine(**options):
    return LocalEngine(**options)
"""

FORKED = LOCAL.replace("LocalEngine(", "LocalEngine(imported_modules=['cloudpickle'], ")

RAY = """
from core_sdk._execution.workers.ray import RayEngine

def engine(**options):
    return RayEngine({address!r}, **options)
"""


@pytest.fixture(params=["local", "ray"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    """Programs on this engine; they are killed at the end of the test if they still run."""
    yield from programs_on(request, tmp_path)


def programs_on(request: pytest.FixtureRequest, directory: Path) -> Iterator[Programs]:
    """Yields programs for the engine that is the fixture's parameter."""
    if request.param == "ray":
        address: str = request.getfixturevalue("ray_address")
        engine = RAY.format(address=address)
        programs = Programs("ray", environment("ray").python, engine, directory, VARIABLES)
    else:
        engine = {"local": LOCAL, "forked": FORKED}[request.param]
        programs = Programs("local", Path(sys.executable), engine, directory, {})
    yield programs
    for program in programs.started:
        if program.process.poll() is None:
            program.process.kill()
        program.process.communicate()


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """The address of a Ray cluster of one node, which runs to the end of all tests."""
    with reserved_port() as port, ray_node("--head", f"--port={port}", f"--num-cpus={NUM_CPUS}"):
        yield f"127.0.0.1:{port}"


@pytest.fixture
def two_ray_nodes() -> Iterator[str]:
    """The address of a Ray cluster of two nodes, with two CPUs each, which see the same files."""
    with (
        reserved_port() as port,
        ray_node("--head", f"--port={port}", "--num-cpus=2"),
        ray_node(f"--address=127.0.0.1:{port}", "--num-cpus=2"),
    ):
        yield f"127.0.0.1:{port}"


@dataclass(frozen=True)
class RayNode:
    """The only node of a Ray cluster."""

    address: str
    pid: int

    def kill(self) -> None:
        """Kills all processes of Ray and the workers with them."""
        kill_tree(self.pid)


@pytest.fixture
def dying_ray() -> Iterator[RayNode]:
    """A Ray cluster that a test kills."""
    with reserved_port() as port, ray_node("--head", f"--port={port}", "--num-cpus=2") as pid:
        yield RayNode(f"127.0.0.1:{port}", pid)


@dataclass(frozen=True)
class UnwatchedRay:
    """The only node of a Ray cluster whose processes nobody supervises."""

    address: str
    directory: Path

    def processes(self) -> list[psutil.Process]:
        """Returns all processes of Ray."""
        found = psutil.process_iter(["cmdline"])
        return [each for each in found if any(str(self.directory) in word for word in each.info["cmdline"] or ())]

    def kill(self, name: str) -> None:
        """Kills one of Ray's programs, such as `gcs_server` or `raylet`."""
        (process,) = (each for each in self.processes() if each.name() == name)
        process.kill()
        process.wait()


@pytest.fixture
def unwatched_ray() -> Iterator[UnwatchedRay]:
    """A Ray cluster whose processes a test kills one by one."""
    with (
        reserved_port() as port,
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory,
    ):
        ray = UnwatchedRay(f"127.0.0.1:{port}", Path(directory))
        options = [f"--port={port}", "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={directory}"]
        try:
            subprocess.run(
                [environment("ray").program("ray"), "start", "--head", "--object-store-memory=500000000", *options],
                env=os.environ | VARIABLES,
                check=True,
                capture_output=True,
            )
            yield ray
        finally:
            while left := ray.processes():
                for process in left:
                    kill_tree(process.pid)


def _start_ray(options: Sequence[str], on: Host | None) -> tuple[subprocess.Popen[str], str | None]:
    """Starts a node. Returns its process, and what it said if it did not come up."""
    start = subprocess.Popen if on is None else on.start
    node = start(
        [environment("ray").program("ray"), "start", "--block", "--object-store-memory=500000000", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | VARIABLES,
        start_new_session=True,
    )
    assert node.stdout is not None
    said = []
    for line in node.stdout:
        said.append(line)
        if "Ray runtime started" in line:
            return node, None
    return node, "".join(said)


@contextmanager
def ray_node(*options: str, on: Host | None = None) -> Iterator[int]:
    """Runs a node of a Ray cluster, here or on one of the hosts that the test has made, and yields its pid."""
    # A short path, since Ray has sockets in it.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory:
        if "--head" in options:
            options = (*options, "--include-dashboard=false", f"--temp-dir={directory}")
        node, said = _start_ray(options, on)
        for _ in range(_MORE_STARTS):
            if said is None:
                break
            kill_tree(node.pid)
            node, said = _start_ray(options, on)
        try:
            assert said is None, f"Ray could not be started: {said}"
            yield node.pid
        finally:
            # Never `ray stop`: it ends every Ray of this machine.
            kill_tree(node.pid)
            node.communicate()
