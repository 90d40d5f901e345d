"""A Ray cluster of two hosts, each with its own network, processes and home."""

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
    """The home of the second host is at the same place as that of the first, and another one."""

    hosts: HostGroup
    directory: Path
    home: Path
    """Of the first host."""
    second_home: Path
    """Where the second host's home lies for the test."""

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
        """Ray on one host; it is there when this returns. It has one resource that is named as the host."""
        command = [str(environment("ray").program("ray")), "start", "--block", "--num-cpus=2"]
        command += [f"--node-ip-address={host.address}", f'--resources={{"{host.name}": 2}}']
        command += ["--object-store-memory=100000000", *options]
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
def ray_hosts(directory: Path) -> Iterator[RayHosts]:
    require("ray")
    with ExitStack() as stack:
        hosts = stack.enter_context(host_group(2))
        # A short path, since Ray has sockets in it.
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
        home, second_home = directory / "home", directory / "second-home"
        for each in (home, second_home):
            each.mkdir(exist_ok=True)
        hosts[1].bind(second_home, home)
        cluster = RayHosts(hosts, directory, home, second_home)
        cluster.start_node(hosts[0], "--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={sockets}")
        cluster.start_node(hosts[1], f"--address={cluster.address}")
        yield cluster
