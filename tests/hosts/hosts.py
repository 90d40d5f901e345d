"""Hosts of one network on this machine: each has its own name, network, processes and mounts, and all files are shared.

They are namespaces without names, so that any number of tests can have hosts at the same time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parts import require
from processes import wait_for

from hosts.namespaces import new_process_ids_for_children, process_ids, process_ids_of, processes_in

# Process 1 of a host reads until this process closes its end, or is killed: no host outlives the tests.
_BE_HOST = """
set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
mount --bind "$2" /etc/hosts
hostname "$1"
ip link set lo up
echo ready
exec > /dev/null
read -r || true
"""


class Host:
    """A machine of its own, but for its files; /tmp is everybody's, /dev/shm is not."""

    def __init__(self, number: int, names: Path, switch: _Init) -> None:
        self.name = f"h{number}"
        self.address = _address(number)
        self._port = f"p{number}"
        self._switch = switch
        self._init = _Init(self.name, names)
        self._processes: list[subprocess.Popen[Any]] = []

    @property
    def pid(self) -> int:
        """Of its process 1, as seen from here."""
        return self._init.pid

    @property
    def process_ids(self) -> str:
        """The name of its PID namespace."""
        return self._init.process_ids

    def start(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **keywords: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a process on this host, whose parent is here: `Popen`'s `pid`, signals and exit status are its own."""
        entering = self._init.entering(os.fspath(cwd or Path.cwd()))
        with process_ids_of(self.pid):
            process = subprocess.Popen([*entering, *argv], env=env, **keywords)
        self._processes.append(process)
        return process

    def run(self, argv: Sequence[str | os.PathLike[str]], **keywords: Any) -> subprocess.CompletedProcess[str]:
        """Runs a command on this host to its end, which must be a success."""
        process = self.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **keywords)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, f"{argv} on {self.name}: {process.returncode}\n{output}\n{errors}"
        return subprocess.CompletedProcess(process.args, 0, output, errors)

    def bind(self, source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
        """Shows this file or folder in the place of another one, which must exist, on this host only."""
        self.run(["mount", "--bind", source, target])

    def kill(self) -> None:
        """Kills the host with all its processes.

        The kernel still closes their connections, so that the others hear of it. Where the power goes nobody hears
        anything: for that, cut the cable first.
        """
        self._init.kill()
        wait_for(lambda: not self.living())

    def kill_all(self) -> None:
        """Kills all processes on the host, which itself lives on."""
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.living())

    def living(self) -> list[int]:
        """Returns the processes on it, but for process 1, that have not ended."""
        return [pid for pid in processes_in(self._init.process_ids) if pid != self.pid]

    def cut(self) -> None:
        """Cuts the host's cable in both directions, without any sign to either end."""
        self._switch.run(["ip", "link", "set", self._port, "down"])

    def mend(self) -> None:
        """Makes its cable whole again."""
        self._switch.run(["ip", "link", "set", self._port, "up"])

    def lose(self, percent: float) -> None:
        """Drops this share of arriving packets at random from now on; 0 ends it."""
        self._init.run(["iptables", "--wait", "--flush", "INPUT"])
        if percent:
            chance = ["-m", "statistic", "--mode", "random", "--probability", str(percent / 100)]
            self._init.run(["iptables", "--wait", "-A", "INPUT", "-i", "eth0", *chance, "-j", "DROP"])

    def _plug_in(self) -> None:
        """Plugs in the cable to the switch, at once; its hosts' names lie in their own /etc/hosts."""
        self._switch.run(["ip", "link", "add", self._port, "type", "veth", "peer", "eth0", "netns", str(self.pid)])

    def _set_up(self) -> None:
        self._init.run(["ip", "addr", "add", f"{self.address}/24", "dev", "eth0"])
        self._init.run(["ip", "link", "set", "eth0", "up"])
        self._switch.run(["ip", "link", "set", self._port, "master", "bridge", "up"])

    def _end(self) -> None:
        self.kill()
        for process in self._processes:
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._init.end()


class HostGroup:
    """The hosts that one cable or switch joins."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = hosts

    def __getitem__(self, index: int) -> Host:
        return self.hosts[index]

    def __len__(self) -> int:
        return len(self.hosts)

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts)


@contextlib.contextmanager
def host_group(count: int, *, latency_s: float = 0.0) -> Iterator[HostGroup]:
    """Hosts h1, h2, … at 10.77.0.1, …; a frame takes the latency from one to another. At the end they all die."""
    require("hosts")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts")))
        names = _written_names(folder / "hosts", count)
        switch = _Init("switch", names)
        stack.callback(switch.end)
        switch.run(["ip", "link", "add", "bridge", "type", "bridge"])
        switch.run(["ip", "link", "set", "bridge", "up"])
        hosts = []
        for number in range(1, count + 1):
            host = Host(number, names, switch)
            stack.callback(host._end)
            hosts.append(host)
        if latency_s:
            stack.enter_context(_slow_cables(hosts, switch, latency_s))
        else:
            for host in hosts:
                host._plug_in()
        for host in hosts:
            host._set_up()
        yield HostGroup(hosts)


class _Init:
    """Process 1 of new namespaces, which end with it."""

    def __init__(self, name: str, names: Path) -> None:
        unshared = ["unshare", "--net", "--uts", "--mount"]
        with new_process_ids_for_children():
            self._process = subprocess.Popen(
                [*unshared, "bash", "-c", _BE_HOST, "bash", name, str(names)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", f"there is no host {name}"
        self.process_ids = process_ids(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def entering(self, folder: str) -> list[str]:
        """Returns the start of an argv that enters all its namespaces but the PIDs', which only children enter."""
        return ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", f"--wd={folder}", "--"]

    def run(self, argv: Sequence[str]) -> None:
        """Runs a command in the host's network."""
        done = subprocess.run([*self.entering("/"), *argv], capture_output=True, text=True)
        assert done.returncode == 0, f"{argv}: {done.stderr}"

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kills the host. The kernel keeps it until the parents of all its processes have looked at them."""
        self.kill()
        self._process.communicate(timeout=60)


@contextlib.contextmanager
def _slow_cables(hosts: Sequence[Host], switch: _Init, latency_s: float) -> Iterator[None]:
    """Connects each host to the switch by a cable with half the latency."""
    ends = [f"{host.pid}:eth0:{switch.pid}:{host._port}" for host in hosts]
    argv = [sys.executable, "-m", "hosts.cable", str(latency_s / 2), *ends]
    tests = Path(__file__).resolve().parent.parent
    with subprocess.Popen(argv, cwd=tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cable:
        try:
            assert cable.stdout is not None
            assert cable.stdout.readline() == b"ready\n", "there is no cable"
            yield
        finally:
            cable.kill()


def _address(number: int) -> str:
    return f"10.77.0.{number}"


def _written_names(path: Path, count: int) -> Path:
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{_address(number)} h{number}" for number in range(1, count + 1)]
    path.write_text("\n".join(lines) + "\n")
    return path
