"""One command starts a training on several hosts: real ones, as far as the kernel can tell, with an sshd on each."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hosts.hosts import HostGroup, host_group
from launches import Ended, live_processes
from parts import needs
from processes import wait_for
from sshd.servers import Network

pytestmark = needs("hosts", "ssh")

# Starting a launcher takes seconds, twice, on a machine that runs other tests.
TIMEOUT_S = 100

WAITS = """
    import os, signal
    print("rank", os.environ["RANK"], "runs", flush=True)
    signal.pause()
"""


class Head:
    """A launcher that runs on the first host."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: Path, stderr: Path) -> None:
        self.process = process
        self._stdout = stdout
        self._stderr = stderr

    @property
    def output(self) -> str:
        return self._stdout.read_text()

    def read_until(self, *lines: str) -> None:
        wait_for(lambda: set(lines) <= set(self.output.splitlines()) or self.process.poll() is not None, TIMEOUT_S)
        assert set(lines) <= set(self.output.splitlines()), self._stderr.read_text()

    def wait(self) -> Ended:
        return Ended(self.process.wait(TIMEOUT_S), self.output, self._stderr.read_text())


@dataclass
class Cluster:
    """Two hosts with a script in a folder that both see."""

    hosts: HostGroup
    network: Network
    folder: Path
    python: str = sys.executable

    def start(self, source: str, *overrides: str, slots: str = "1 1", **variables: str) -> Head:
        (self.folder / "train.py").write_text(textwrap.dedent(source))
        counts = slots.split()
        lines = [f"{host.name} slots={count}" for host, count in zip(self.hosts, counts, strict=False)]
        (self.folder / "hosts.txt").write_text("\n".join(lines))
        return self.start_argv(
            [self.python, "-m", "launch.torch_distributed", "--hostfile", "hosts.txt", *overrides, "--", "train.py"],
            **variables,
        )

    def start_argv(self, argv: Sequence[str], **variables: str) -> Head:
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | self.network.variables | variables
        stdout, stderr = self.folder / "out", self.folder / "err"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = self.hosts[0].start(argv, env=environment, cwd=self.folder, stdout=out, stderr=err)
        return Head(process, stdout, stderr)


@pytest.fixture(scope="module")
def common_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HostGroup, Network]]:
    """Starts two hosts for tests that do not harm them."""
    with host_group(2) as hosts:
        network = Network(tmp_path_factory.mktemp("ssh") / "net")
        for host in hosts:
            network.serve(host)
        yield hosts, network


@pytest.fixture
def cluster(common_hosts: tuple[HostGroup, Network], launch_directory: Path) -> Cluster:
    return Cluster(*common_hosts, launch_directory)


@pytest.fixture
def own_cluster(launch_directory: Path, tmp_path: Path) -> Iterator[Cluster]:
    """Starts two hosts that a test may harm."""
    with host_group(2) as hosts:
        network = Network(tmp_path / "net")
        for host in hosts:
            network.serve(host)
        yield Cluster(hosts, network, launch_directory)


def test_one_command_trains_on_two_hosts(cluster: Cluster) -> None:
    """One command trains on two hosts with consecutive ranks, and a stop saves on both."""
    head = cluster.start(
        """
        import os, signal, time, torch, torch.distributed
        import core_sdk as det
        torch.distributed.init_process_group("gloo")
        distributed = det.core.DistributedContext.from_torch_distributed()
        with det.core.init(distributed=distributed, name="hosts") as context:
            rank, total = distributed.rank, torch.ones(1) * (distributed.rank + 1)
            torch.distributed.all_reduce(total)
            places = distributed.allgather((os.uname().nodename, distributed.cross_rank, distributed.local_rank))
            print(rank, int(total), places, flush=True)
            while not context.preempt.should_preempt():
                time.sleep(0.01)
            if rank == 0:
                with context.checkpoint.store_path({"steps_completed": 7}) as (path, _):
                    (path / "model").write_text("m")
            print(rank, "saved", flush=True)
        torch.distributed.destroy_process_group()
        """,
        slots="1 1",
    )
    places = "[('h1', 0, 0), ('h2', 1, 0)]"

    head.read_until(f"[rank=0] 0 3 {places}", f"[rank=1] 1 3 {places}")
    head.process.send_signal(signal.SIGTERM)
    ended = head.wait()

    assert ended.code == 75, ended.stderr
    assert {"[rank=0] 0 saved", "[rank=1] 1 saved"} <= set(ended.stdout.splitlines())
    assert ended.stderr.count("stopped as asked, to be continued") == 1


def test_a_stop_reaches_the_hosts_though_nobody_reads_the_heads_output(cluster: Cluster) -> None:
    """A stop reaches the hosts even if every pipe of the output is full."""
    source = """
        import os, signal
        wishes = []
        signal.signal(signal.SIGTERM, lambda *_: wishes.append("stop"))
        open("ready." + os.environ["RANK"], "w").close()
        while not wishes:
            print("x" * 1000)
        open("saved." + os.environ["RANK"], "w").close()
    """
    (cluster.folder / "train.py").write_text(textwrap.dedent(source))
    (cluster.folder / "hosts.txt").write_text("".join(f"{host.name} slots=1\n" for host in cluster.hosts))
    argv = [sys.executable, "-m", "launch.torch_distributed", "--hostfile", "hosts.txt", "--", "train.py"]
    read_end, write_end = os.pipe()
    environment = os.environ | cluster.network.variables
    head = cluster.hosts[0].start(argv, env=environment, cwd=cluster.folder, stdout=write_end)
    wait_for(lambda: len(list(cluster.folder.glob("ready.*"))) == 2, TIMEOUT_S)
    wait_for(lambda: not select.select([], [write_end], [], 0)[1], TIMEOUT_S)

    head.send_signal(signal.SIGTERM)

    assert head.wait(TIMEOUT_S) == 75
    assert len(list(cluster.folder.glob("saved.*"))) == 2
    for end in (read_end, write_end):
        os.close(end)


def test_hosts_know_what_they_may_and_end_with_the_head(cluster: Cluster) -> None:
    """Named variables arrive, secrets do not, no process's arguments show any; a killed head leaves nothing."""
    names = ("GLOO_X", "FOO_TOKEN", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "MY_NAME", "CORE_SDK_CHANNEL_KEY")
    values = {name: secrets.token_hex(16) for name in names}
    head = cluster.start(
        f"""
        import json, os, signal
        names = {names}
        path = os.environ["CORE_SDK_RUN_INFO"]
        modes = [oct(os.stat(place).st_mode & 0o777) for place in (path, os.path.dirname(path))]
        told = dict(host=os.uname().nodename, path=path, modes=modes, here=os.getcwd())
        print(json.dumps(told | {{name: os.environ.get(name) for name in names}}), flush=True)
        signal.pause()
        """,
        CORE_SDK_PASS_VARIABLES="MY_*",
        **values,
    )

    wait_for(lambda: head.output.count("\n") == 2 or head.process.poll() is not None, TIMEOUT_S)
    arguments = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    head.process.kill()

    told = [json.loads(line.partition("] ")[2]) for line in head.output.splitlines()]
    passed = {name: values[name] for name in ("GLOO_X", "MY_NAME", "CORE_SDK_CHANNEL_KEY")}
    assert {place["host"] for place in told} == {"h1", "h2"}
    for place in told:
        assert {name: place[name] for name in names} == dict.fromkeys(names) | passed
        assert (place["modes"], place["here"]) == (["0o600", "0o700"], str(cluster.folder))
    assert any("_host_program.py" in line for line in arguments)
    assert not [line for line in arguments if any(value in line for value in values.values())]
    wait_for(lambda: not live_processes(cluster.folder), TIMEOUT_S)
    wait_for(lambda: not any(Path(place["path"]).parent.exists() for place in told))


def test_the_first_failing_rank_is_named_with_its_host(cluster: Cluster) -> None:
    """The first failing rank is named once with its host, and the other host's ranks are ended."""
    head = cluster.start(
        """
        import os, signal, sys
        if os.environ["RANK"] == "2":
            sys.exit(7)
        signal.pause()
        """,
        slots="2 1",
    )

    ended = head.wait()

    assert ended.code == 7, ended.stderr
    assert re.findall(r"rank (\d) of 3 failed first \(host (\w+)", ended.stderr) == [("2", "h2")]
    assert "another node" not in ended.stderr
    assert not live_processes(cluster.folder)


def test_an_unknown_host_key_is_refused(cluster: Cluster) -> None:
    """A host with an unknown or changed key is refused, and nothing runs on any host."""
    known = cluster.network.known_hosts.read_text()
    second = cluster.hosts[1]
    try:
        cluster.network.forget(second)
        unknown = cluster.start(WAITS).wait()
        cluster.network.take_for_another(second)
        changed = cluster.start(WAITS).wait()
    finally:
        cluster.network.known_hosts.write_text(known)

    assert (unknown.code, changed.code) == (1, 1)
    assert "[core-sdk] h2 has a host key that ssh does not know: nothing was sent to it" in unknown.stderr
    assert "[core-sdk] h2 has another host key than the one that ssh knows" in changed.stderr
    assert not unknown.stdout + changed.stdout


def test_what_is_missing_on_a_host_is_said(cluster: Cluster, tmp_path: Path) -> None:
    """A missing interpreter or working directory on a host is named."""
    first, second = cluster.hosts
    (tmp_path / "empty").mkdir()
    private = tmp_path / "private"
    private.mkdir()
    first.run(["mount", "-t", "tmpfs", "tmpfs", private])
    first.run(["cp", "-r", cluster.folder, private / "work"])
    python = Path(sys.executable)
    second.bind(tmp_path / "empty", python.parent)
    try:
        no_python = cluster.start(WAITS).wait()
    finally:
        second.run(["umount", python.parent])
    launch = f"{python} -m launch.torch_distributed --hostfile {cluster.folder}/hosts.txt -- train.py"
    first.run(["cp", cluster.folder / "train.py", private / "work"])

    no_directory = cluster.start_argv(["sh", "-c", f"cd {private}/work && exec {launch}"]).wait()

    assert (no_python.code, no_directory.code) == (1, 1)
    assert f"[core-sdk] h2: {python} cannot be started there (status 127)" in no_python.stderr
    assert f"[core-sdk] h2: the working directory {private}/work cannot be entered there" in no_directory.stderr


def test_a_lost_host_ends_the_training(own_cluster: Cluster) -> None:
    """A lost host is named, and the ranks on the others are ended."""
    head = own_cluster.start(WAITS)
    head.read_until("[rank=0] rank 0 runs", "[rank=1] rank 1 runs")

    own_cluster.hosts[1].kill()
    ended = head.wait()

    assert ended.code == 1
    assert "[core-sdk] h2 was lost" in ended.stderr
    assert not live_processes(own_cluster.folder)


def test_a_host_that_falls_silent_is_lost(own_cluster: Cluster) -> None:
    """When a host's cable is cut, the launcher names the host as lost, and the host ends its own ranks."""
    head = own_cluster.start(WAITS)
    head.read_until("[rank=0] rank 0 runs", "[rank=1] rank 1 runs")

    own_cluster.hosts[1].cut()
    ended = head.wait()
    wait_for(lambda: not live_processes(own_cluster.folder), timeout_s=120)

    assert ended.code == 1
    assert "[core-sdk] h2 was lost" in ended.stderr


def test_signals_reach_every_rank(cluster: Cluster) -> None:
    """Signals reach the ranks on all hosts, and a second Ctrl-C kills them."""
    head = cluster.start(
        """
        import os, signal
        rank = os.environ["RANK"]
        signal.signal(signal.SIGUSR1, lambda *_: print(rank, "usr1", flush=True))
        signal.signal(signal.SIGINT, lambda *_: print(rank, "int", flush=True))
        print(rank, "runs", flush=True)
        while True:
            signal.pause()
        """
    )
    head.read_until("[rank=0] 0 runs", "[rank=1] 1 runs")

    head.process.send_signal(signal.SIGUSR1)
    head.read_until("[rank=0] 0 usr1", "[rank=1] 1 usr1")
    head.process.send_signal(signal.SIGINT)
    head.read_until("[rank=0] 0 int", "[rank=1] 1 int")
    head.process.send_signal(signal.SIGINT)
    ended = head.wait()

    assert ended.code == 130, ended.stderr
    assert "killed by a second SIGINT" in ended.stderr
    assert not live_processes(cluster.folder)


def test_a_killed_node_leaves_nothing(cluster: Cluster) -> None:
    """If a host's launcher node is killed, no process or directory stays on it."""
    head = cluster.start(WAITS)
    head.read_until("[rank=0] rank 0 runs", "[rank=1] rank 1 runs")

    variables = [psutil.Process(pid).environ() for pid in live_processes(cluster.folder)]
    directories = {Path(each["CORE_SDK_LAUNCH_DIR"]) for each in variables if "RANK" in each}
    nodes = [process for process in psutil.process_iter() if _is_node_of(process, cluster.folder)]
    for process in nodes:
        process.kill()
    ended = head.wait()

    assert len(nodes) == len(directories) == 2
    assert ended.code == 1
    wait_for(lambda: not live_processes(cluster.folder))
    wait_for(lambda: not any(directory.exists() for directory in directories))


def test_an_elastic_training_outlives_a_host(own_cluster: Cluster) -> None:
    """An elastic training goes on if enough hosts are left."""
    head = own_cluster.start(
        """
        import os, time, torch, torch.distributed
        torch.distributed.init_process_group("gloo")
        size = torch.distributed.get_world_size()
        print("of", size, flush=True)
        while size == 2:
            torch.distributed.all_reduce(torch.ones(1))
            time.sleep(0.01)
        """,
        "--nnodes=1:2",
        "--max-restarts=1",
        # So that the one who is left does not wait for another to come.
        "--rdzv-conf=last_call_timeout=1",
    )
    head.read_until("[rank=0] of 2", "[rank=1] of 2")

    own_cluster.hosts[1].kill()
    ended = head.wait()

    assert ended.code == 0, ended.stderr
    assert "[core-sdk] the training goes on: nodes left: 1, needed: 1" in ended.stderr
    assert "[rank=0] of 1" in ended.stdout


def _is_node_of(process: psutil.Process, folder: Path) -> bool:
    with process.oneshot():
        try:
            return "CORE_SDK_HEAD" in process.environ() and Path(process.cwd()).is_relative_to(folder)
        except psutil.Error:
            return False
