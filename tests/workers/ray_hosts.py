"""A Ray cluster of several hosts, each with its own network, processes and home."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from frameworks.environments import environment
from hosts.hosts import Host, HostGroup, host_group
from parts import require
from processes import Script

_VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "GLOO_SOCKET_IFNAME": "eth0"}
_PORT = 6399


@dataclass(frozen=True)
class RayHosts:
    """The homes of all hosts are at the same place, and each is another one. The first host has no resource "away"."""

    hosts: HostGroup
    directory: Path
    home: Path
    """Of the first host."""

    def home_of(self, index: int) -> Path:
        """Where the test finds the home of this host."""
        return _home_of(self.directory, index)

    @property
    def address(self) -> str:
        return f"{self.hosts[0].address}:{_PORT}"

    def start(self, source: str, **variables: str) -> Script:
        """A program on the first host."""
        path = self.directory / "program.py"
        path.write_text(source)
        process = self.hosts[0].start(
            [environment("ray").python, "-u", path],
            env={**self._variables(), **variables},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Script(process)

    def start_node(self, host: Host, *options: str) -> subprocess.Popen[str]:
        """Ray on one host; it is there when this returns."""
        command = [str(environment("ray").program("ray")), "start", "--block", "--num-cpus=2"]
        command += [f"--node-ip-address={host.address}", "--object-store-memory=100000000"]
        command += options or [f"--address={self.address}", '--resources={"away": 2}']
        node = host.start(command, env=self._variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert node.stdout is not None
        said = []
        for line in node.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return node
        raise AssertionError(f"Ray could not be started on {host.name}: {''.join(said)}")

    def _variables(self) -> Mapping[str, str]:
        return {**os.environ, **_VARIABLES, "CORE_SDK_HOME": str(self.home)}


@contextmanager
def ray_hosts(directory: Path, count: int) -> Iterator[RayHosts]:
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
        cluster = RayHosts(hosts, directory, home)
        cluster.start_node(hosts[0], "--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={sockets}")
        for host in list(hosts)[1:]:
            cluster.start_node(host)
        yield cluster


def _home_of(directory: Path, index: int) -> Path:
    return directory / (f"home-of-host-{index}" if index else "home")
