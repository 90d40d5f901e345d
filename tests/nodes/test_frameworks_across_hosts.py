"""DeepSpeed and Horovod on two hosts: started by one command, by a launcher on each, and by their own programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from frameworks.test_frameworks_example import (
    EXAMPLE,
    NUM_EPOCHS,
    STEPS_PER_EPOCH,
    TOLERANCE,
    accuracy,
    training,
)
from hosts.hosts import Host, HostGroup, host_group
from launches import live_processes
from parts import needs
from processes import wait_for
from sshd.servers import Network

from core_sdk.client import Trial
from nodes.conftest import TheTrial
from nodes.launchers import NodeLaunch

pytestmark = [needs("hosts", "ssh", "deepspeed", "horovod"), pytest.mark.timeout(900)]

_PLACES = Path(__file__).with_name("places.py")
# Each rank imports torch and a framework, on a machine that may have other things to do.
_TIMEOUT_S = 300.0
# What the documentation says of a host that is lost; the rest is a busy machine's.
_LOSS_S = 30.0 + 60.0
_TWO_RANKS = "2 ranks on 2 nodes: ('h1', 0, 0, 1) ('h2', 1, 0, 1)"
_THREE_RANKS = "3 ranks on 2 nodes: ('h1', 0, 0, 2) ('h1', 0, 1, 2) ('h2', 1, 0, 1)"


@dataclass
class Cluster:
    """Two hosts with sshd, and the folder in which the launchers work."""

    hosts: HostGroup
    network: Network
    folder: Path

    def start(self, framework: str, argv: Sequence[object], node: int = 0, **variables: str) -> NodeLaunch:
        """Starts it in the framework's environment, from which the launchers pass on what its ranks need."""
        ours = {**training(framework).variables, **variables}
        ours["PATH"] = f"{self.network.folder / 'bin'}:{ours.get('PATH', self.network.variables['PATH'])}"
        return NodeLaunch(self.hosts[node], self.folder, list(map(str, argv)), **ours)

    def start_over_ssh(
        self, framework: str, script: Sequence[object], slots: str = "1 1", **variables: str
    ) -> NodeLaunch:
        """Starts the training by one command on the first host."""
        named = ",".join(f"{host.name}:{count}" for host, count in self._counts(slots))
        hosts = ["-H", named] if framework == "horovod" else ["--hostfile", self.write_hostfile(slots)]
        return self.start(framework, [*_launcher(framework), *hosts, "--", *script], 0, **variables)

    def start_placed(self, framework: str, script: Sequence[object], slots: str = "1 1") -> list[NodeLaunch]:
        """Starts a launcher on each host, each of which is told its place."""
        if framework == "horovod":
            argv = [*_launcher(framework), "--", *script]
            return [
                self.start(framework, argv, node, CORE_SDK_RUN_INFO=str(self._write_run_info(node, slots)))
                for node in range(2)
            ]
        first = ["--hostfile", self.write_hostfile(slots), "--no_ssh", "--master_addr=10.77.0.1"]
        return [
            self.start(framework, [*_launcher(framework), *first, f"--node_rank={node}", "--", *script], node)
            for node in range(2)
        ]

    def write_hostfile(self, slots: str) -> Path:
        path = self.folder / "hosts.txt"
        path.write_text("".join(f"{host.name} slots={count}\n" for host, count in self._counts(slots)))
        return path

    def assert_empty(self) -> None:
        """Waits until no process of a launch is left on any host."""
        wait_for(lambda: not live_processes(self.folder))

    def _counts(self, slots: str) -> list[tuple[Host, str]]:
        return [pair for pair in zip(self.hosts, slots.split(), strict=True) if pair[1] != "0"]

    def _write_run_info(self, node: int, slots: str) -> Path:
        path = self.folder / f"run_info-{node}.json"
        path.touch(mode=0o600)
        counts = [int(count) for count in slots.split()]
        info = {"container_addrs": [host.address for host in self.hosts], "container_slot_counts": counts}
        path.write_text(json.dumps({"task_type": "PLACED", "container_rank": node, **info}))
        return path


def _launcher(framework: str) -> list[object]:
    return [training(framework).python, "-m", f"launch.{framework}"]


def _places(framework: str, *arguments: str) -> list[object]:
    return [_PLACES, framework, *arguments]


def _cluster(folder: Path, tmp_path: Path, latency_s: float = 0.0) -> Iterator[Cluster]:
    with host_group(2, latency_s=latency_s) as hosts:
        network = Network(tmp_path / "net")
        for host in hosts:
            network.serve(host)
        yield Cluster(hosts, network, folder)


@pytest.fixture
def cluster(folder: Path, tmp_path: Path) -> Iterator[Cluster]:
    yield from _cluster(folder, tmp_path)


@pytest.fixture
def distant_cluster(folder: Path, tmp_path: Path) -> Iterator[Cluster]:
    """20 ms from each other."""
    yield from _cluster(folder, tmp_path, latency_s=0.02)


def _await_places(launches: Sequence[NodeLaunch], line: str) -> None:
    """Waits until all ranks have printed this line."""
    ranks = range(int(line.split()[0]))
    said = [f"[rank={rank}] {line}" for rank in ranks]
    wait_for(
        lambda: (
            all(any(each in launch.output for launch in launches) for each in said)
            or any(launch.has_ended() for launch in launches)
        ),
        _TIMEOUT_S,
    )
    outputs = "".join(launch.output for launch in launches)
    errors = "".join(launch.errors for launch in launches)
    assert all(each in outputs for each in said), f"{outputs}\n{errors}"


def _steps(trial: Trial) -> list[int | None]:
    return [report.steps_completed for report in trial.iter_metrics("validation")]


@pytest.mark.parametrize(("framework", "slots"), [("deepspeed", "1 1"), ("horovod", "1 1"), ("horovod", "2 1")])
def test_one_command_trains_on_two_hosts_as_on_one(
    cluster: Cluster, the_trial: TheTrial, framework: str, slots: str
) -> None:
    """One command trains on two hosts as one trial, with a stop, to the accuracy of as many ranks on one host."""
    script = ["python", EXAMPLE]
    num_ranks = sum(map(int, slots.split()))

    first = cluster.start_over_ssh(framework, script, slots, CORE_SDK_JOB_ID="digits")
    first.read_until("[rank=0] epoch 3,")
    first.stop()
    assert first.wait(_TIMEOUT_S) == 75, first.errors
    second = cluster.start_over_ssh(framework, script, slots, CORE_SDK_JOB_ID="digits")
    assert second.wait(_TIMEOUT_S) == 0, second.errors
    trial = the_trial.read()
    alone = cluster.start_over_ssh(framework, script, f"{num_ranks} 0")
    assert alone.wait(_TIMEOUT_S) == 0, alone.errors

    assert _steps(trial) == [STEPS_PER_EPOCH * (epoch + 1) for epoch in range(NUM_EPOCHS)]
    assert accuracy(second.output) == pytest.approx(accuracy(alone.output), abs=TOLERANCE)
    cluster.assert_empty()


@pytest.mark.parametrize("framework", ["deepspeed", "horovod"])
@pytest.mark.parametrize(("slots", "line"), [("1 1", _TWO_RANKS), ("2 1", _THREE_RANKS)], ids=["equal", "unequal"])
def test_launchers_that_are_placed_need_no_ssh(cluster: Cluster, framework: str, slots: str, line: str) -> None:
    """Launchers that are started on each host, with their place in options or a run info, need no ssh."""
    launches = cluster.start_placed(framework, _places(framework), slots)

    _await_places(launches, line)
    assert [launch.wait(_TIMEOUT_S) for launch in launches] == [0, 0]


@pytest.mark.parametrize("framework", ["deepspeed", "horovod"])
@pytest.mark.parametrize(
    ("slots", "line"), [("2 1", _THREE_RANKS), ("0 1", "1 ranks on 1 nodes: ('h2', 0, 0, 1)")], ids=["both", "other"]
)
def test_only_the_head_needs_the_hostfile(
    cluster: Cluster, tmp_path: Path, framework: str, slots: str, line: str
) -> None:
    """Only the first host needs the hostfile, from which the others learn their numbers of ranks."""
    first = cluster.hosts[0]
    private = tmp_path / "private"
    private.mkdir()
    first.run(["mount", "-t", "tmpfs", "tmpfs", private])
    first.run(["cp", cluster.write_hostfile(slots), private / "hosts"])

    launch = cluster.start(
        framework, [*_launcher(framework), "--hostfile", private / "hosts", "--", *_places(framework)]
    )

    _await_places([launch], line)
    assert launch.wait(_TIMEOUT_S) == 0, launch.errors


def test_gloo_can_be_told_an_interface_where_names_lead_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    """Where each host's own name leads to 127.0.1.1, as on Debian, gloo works with GLOO_SOCKET_IFNAME."""
    for host, other in (tuple(cluster.hosts), tuple(cluster.hosts)[::-1]):
        names = tmp_path / f"{host.name}-names"
        names.write_text(f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n{other.address} {other.name}\n")
        host.bind(names, "/etc/hosts")

    launch = cluster.start_over_ssh("deepspeed", _places("deepspeed"), GLOO_SOCKET_IFNAME="eth0")

    _await_places([launch], _TWO_RANKS)
    assert launch.wait(_TIMEOUT_S) == 0, launch.errors


def test_deepspeeds_own_ranks_have_a_context_too(cluster: Cluster) -> None:
    """Ranks started by DeepSpeed's own program on each host get a Context."""
    python = training("deepspeed").python
    options = ["--hostfile", cluster.write_hostfile("2 1"), "--no_ssh", "--no_local_rank", "--master_addr=10.77.0.1"]
    launches = [
        cluster.start(
            "deepspeed",
            [python.with_name("deepspeed"), *options, f"--node_rank={node}", *_places("deepspeed")],
            node,
        )
        for node in range(2)
    ]

    assert [launch.wait(_TIMEOUT_S) for launch in launches] == [0, 0], [launch.errors for launch in launches]
    assert [launch.output.count(_THREE_RANKS) for launch in launches] == [2, 1]


def test_horovodruns_own_ranks_have_a_context_too(cluster: Cluster) -> None:
    """Ranks that horovodrun starts on another host by ssh get a Context."""
    python = training("horovod").python
    ssh = ["-p", "22", "-i", cluster.network.key]
    argv = [python.with_name("horovodrun"), "-np", "3", *ssh, "-H", "h1:2,h2:1", python, *_places("horovod")]

    launch = cluster.start("horovod", argv)

    assert launch.wait(_TIMEOUT_S) == 0, launch.errors
    assert launch.output.count(_THREE_RANKS) == 3


@pytest.mark.parametrize("framework", ["deepspeed", "horovod"])
@pytest.mark.parametrize("loss", ["dies", "is cut off"])
def test_a_lost_host_ends_the_training(cluster: Cluster, framework: str, loss: str) -> None:
    """When a host is lost, the training ends with an error that names it, and no process is left on either host."""
    head = cluster.start_over_ssh(framework, _places(framework, "for-ever"))
    _await_places([head], _TWO_RANKS)
    second = cluster.hosts[1]

    second.kill() if loss == "dies" else second.cut()

    assert head.wait(_LOSS_S) == 1
    assert "h2 was lost" in head.errors
    # Who is cut off hears nothing of the head for a minute.
    wait_for(lambda: not live_processes(cluster.folder), 120)


@pytest.mark.parametrize("framework", ["deepspeed", "horovod"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_host_ends_launchers_that_are_placed(cluster: Cluster, framework: str, victim: int) -> None:
    """When a host is lost, also the first one, the launcher placed on the other host ends."""
    launches = cluster.start_placed(framework, _places(framework, "for-ever"))
    _await_places(launches, _TWO_RANKS)

    cluster.hosts[victim].kill()

    assert launches[1 - victim].wait(_LOSS_S) == 1
    assert f"rank {1 - victim} of 2 failed first" in launches[1 - victim].errors
    cluster.assert_empty()


@needs("latency")
@pytest.mark.parametrize("framework", ["deepspeed", "horovod"])
def test_a_slow_network_changes_nothing_but_the_time(
    distant_cluster: Cluster, the_trial: TheTrial, framework: str
) -> None:
    """With 20 ms between the hosts, a training reports the same steps."""
    script = ["python", EXAMPLE, "--epochs", "2", "--batch-size", "256"]

    head = distant_cluster.start_over_ssh(framework, script)

    assert head.wait(_TIMEOUT_S) == 0, head.errors
    assert re.findall(r"^\[rank=0\] epoch (\d), step (\d+)", head.output, re.MULTILINE) == [("1", "6"), ("2", "12")]
    assert _steps(the_trial.read()) == [6, 12]
