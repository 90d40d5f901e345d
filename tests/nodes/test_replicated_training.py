"""Replicas on real hosts: all ranks die after the nodes have a checkpoint in memory, and before the storage has it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hosts.hosts import Host, HostGroup, host_group
from parts import needs

from core_sdk.client import Tracker
from nodes.launchers import NodeLaunch

pytestmark = [needs("hosts"), pytest.mark.timeout(600)]

SCRIPT = str(Path(__file__).with_name("replicated.py"))

FLIP = """
import pathlib
(path,) = pathlib.Path("/dev/shm").glob("core-sdk-replica-*/*/state.pt")
content = bytearray(path.read_bytes())
content[len(content) // 2] ^= 1
path.write_bytes(content)
"""
MODES = """
import os, pathlib
for path in pathlib.Path("/dev/shm").rglob("*"):
    assert path.stat().st_mode & 0o077 == 0, path
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[HostGroup]:
    with host_group(3) as hosts:
        yield hosts


def start(hosts: Sequence[Host], folder: Path) -> list[NodeLaunch]:
    """One rank on each."""
    variables = {"CORE_SDK_CHANNEL_KEY": "0123456789abcdef", "PYTHONPATH": str(Path(__file__).parent.parent)}
    return [
        NodeLaunch(host, folder, [sys.executable, SCRIPT, str(rank), str(len(hosts)), hosts[0].address], **variables)
        for rank, host in enumerate(hosts)
    ]


def die_with_a_replica(hosts: Sequence[Host], folder: Path) -> None:
    """The ranks of one node are killed, and then, as a launcher would, those of the other."""
    launches = start(hosts, folder)
    for launch in launches:
        launch.read_until("held")
    for host in reversed(hosts):
        host.run([sys.executable, "-c", MODES])
        host.kill_all()
    for launch in launches:
        launch.wait()


def go_on(hosts: Sequence[Host], folder: Path) -> list[NodeLaunch]:
    """To the end."""
    launches = start(hosts, folder)
    codes = [launch.wait() for launch in launches]
    assert codes == [0, 0], "\n".join(launch.errors for launch in launches)
    for host in hosts:
        assert host.run(["ls", "/dev/shm"]).stdout == ""
    return launches


def weights(launch: NodeLaunch) -> str:
    return launch.output.splitlines()[-1]


def losses() -> list[tuple[int | None, float]]:
    """All that is not superseded."""
    reports = Tracker().get_trial(1).iter_metrics("training")
    return [(report.steps_completed, float(report.metrics["loss"])) for report in reports]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_training_goes_on_from_the_memory_of_its_nodes(hosts: HostGroup, folder: Path) -> None:
    """From the step that no storage has, though one node's memory is damaged; and no report is lost."""
    pair = [hosts[0], hosts[1]]
    die_with_a_replica(pair, folder)
    hosts[0].run([sys.executable, "-c", FLIP])

    first, second = go_on(pair, folder)

    assert [launch.output.splitlines()[0] for launch in (first, second)] == ["from step 2"] * 2
    assert weights(first) == weights(second)
    assert [step for step, _ in losses()] == [1, 2, 3]
    assert "is finished from the memory of the nodes" in first.errors


def test_without_an_intact_replica_it_goes_on_from_the_storage(hosts: HostGroup, folder: Path) -> None:
    """The damaged ones are removed, and the end is the same."""
    pair = [hosts[0], hosts[1]]
    die_with_a_replica(pair, folder)
    for host in pair:
        host.run([sys.executable, "-c", FLIP])

    first, _ = go_on(pair, folder)

    assert first.output.splitlines()[0] == "from step 1"
    assert [step for step, _ in losses()] == [1, 2, 3]
    assert "stays lost" in first.errors


def test_a_node_may_be_replaced(hosts: HostGroup, folder: Path) -> None:
    """What its memory had, another node's has."""
    die_with_a_replica([hosts[2], hosts[1]], folder)
    hosts[2].kill()

    first, _ = go_on([hosts[0], hosts[1]], folder)

    assert first.output.splitlines()[0] == "from step 2"
    assert [step for step, _ in losses()] == [1, 2, 3]
