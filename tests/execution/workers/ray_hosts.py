"""A Ray cluster of several hosts, each with its own network, processes and home."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from frameworks.environments import environment
from hosts.hosts import Host, HostGroup, host_group
from parts import require
from processes import Script

from core_sdk._home import Home

_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "GLOO_SOCKET_IFNAME": "eth0"}
_PORT = 6399


@dataclass(frozen=True)
class RayHosts:
    """Hosts whose homes have the same path but are different; all but the first have the resource "away"."""

    hosts: HostGroup
    homes: Path
    """The directory in which the test finds the homes of all hosts."""
    directory: Path
    """For programs."""
    home: Path
    """Of programs."""

    def for_test(self, directory: Path) -> RayHosts:
        """Returns hosts whose programs use a home that the other hosts do not see."""
        return replace(self, directory=directory, home=_home_of(self.homes, 0) / directory.name)

    def spool_of(self, index: int) -> Path:
        """Returns the spool of the programs' home on this host."""
        return _home_of(self.homes, index) / "spools" / Home(self.home).identity()

    @property
    def address(self) -> str:
        return f"{self.hosts[0].address}:{_PORT}"

    def variables(self) -> dict[str, str]:
        """Returns the environment of programs, in which `python` is the one with Ray."""
        path = f"{environment('ray').python.parent}{os.pathsep}{os.environ['PATH']}"
        return {**_variables(self.home), "PATH": path}

    def start(self, source: str, **variables: str) -> Script:
        """Starts a program on the first host."""
        path = self.directory / "program.py"
        path.write_text(source)
        process = self.hosts[0].start(
            [environment("ray").python, "-u", path],
            env={**self.variables(), **variables},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Script(process)

    def run_cli(self, *arguments: str) -> str:
        """Returns the output of `core-sdk` on the first host."""
        process = self.hosts[0].start(
            [environment("ray").python, "-m", "core_sdk._interfaces.cli", *arguments],
            env=self.variables(),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return str(output)

    def start_node(self, host: Host, *options: str) -> subprocess.Popen[str]:
        """Starts Ray on one host and waits until it runs."""
        command = [str(environment("ray").program("ray")), "start", "--block"]
        command += [f"--node-ip-address={host.address}", "--object-store-memory=100000000"]
        command += options or [f"--address={self.address}", "--num-cpus=2", '--resources={"away": 2}']
        node = host.start(
            command,
            env=_variables(_home_of(self.homes, 0)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ray gives up if it gets too little of the processor as it starts
        )
        assert node.stdout is not None
        said = []
        for line in node.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return node
        raise AssertionError(f"Ray could not be started on {host.name}: {''.join(said)}")


@contextmanager
def ray_hosts(directory: Path, count: int, *, num_cpus_of_first: int = 2) -> Iterator[RayHosts]:
    require("ray")
    with ExitStack() as stack:
        hosts = stack.enter_context(host_group(count))
        # A short path, since Ray has sockets in it.
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        home = _home_of(directory, 0)
        for index, host in enumerate(hosts):
            _home_of(directory, index).mkdir(exist_ok=True)
            if index > 0:
                host.bind(_home_of(directory, index), home)
        cluster = RayHosts(hosts, directory, directory, home)
        head = ["--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={sockets}"]
        cluster.start_node(hosts[0], *head, f"--num-cpus={num_cpus_of_first}")
        for host in list(hosts)[1:]:
            cluster.start_node(host)
        yield cluster


def _variables(home: Path) -> dict[str, str]:
    return {**os.environ, **_VARIABLES, "CORE_SDK_HOME": str(home)}


def _home_of(directory: Path, index: int) -> Path:
    return directory / (f"home-of-host-{index}" if index else "home")
