"""Commands and clusters for experiments whose trials run on the nodes of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from execution.workers.engines import ray_node
from frameworks.environments import environment
from hosts.hosts import HostGroup, host_group

from core_sdk._execution.experiments.calling import call_running
from core_sdk._execution.experiments.protocol import GetStatus
from core_sdk._home import Home

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(home: Home, tmp_path: Path) -> Iterator[Cli]:
    """Runs `core-sdk` in the environment with Ray."""
    python = environment("ray").python
    os.environ["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    # Ray ends a program this long after its cluster has gone; by default after a minute.
    os.environ["RAY_gcs_rpc_server_reconnect_timeout_s"] = "10"  # noqa: SIM112

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(python), "-m", "core_sdk._interfaces.cli", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    yield run
    status = call_running(home.root, GetStatus())
    for experiment in status.experiments if status else ():
        run("experiment", "kill", str(experiment.experiment_id))


class RayOnHosts:
    def __init__(self, hosts: HostGroup, nodes: contextlib.ExitStack) -> None:
        self.hosts = hosts
        self.address = f"{hosts[0].address}:6399"
        self._nodes = nodes

    def join(self, index: int) -> None:
        """Adds this host to the cluster with one CPU."""
        host = self.hosts[index]
        self._nodes.enter_context(ray_node(f"--address={self.address}", "--num-cpus=1", on=host))

    def suspend(self, index: int) -> None:
        """Stops the host's raylet, so that it starts nothing more."""
        for pid in self.hosts[index].living():
            if psutil.Process(pid).name() == "raylet":
                os.kill(pid, signal.SIGSTOP)

    def cli(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Runs `core-sdk` on the first host, where the master is."""
        argv = [str(environment("ray").python), "-m", "core_sdk._interfaces.cli", *arguments]
        process = self.hosts[0].start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(argv, process.returncode, output, errors)


@pytest.fixture
def ray_on_hosts(home: Home) -> Iterator[RayOnHosts]:
    """A Ray cluster on hosts, of which the first has no CPUs for trials."""
    with host_group(3) as hosts, contextlib.ExitStack() as nodes:
        nodes.enter_context(ray_node("--head", "--port=6399", "--num-cpus=0", on=hosts[0]))
        yield RayOnHosts(hosts, nodes)
