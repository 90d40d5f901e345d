"""Trials over several nodes of a Ray cluster that do not see the home: what dies, and what comes home."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from execution.master.searches import await_end, events_of
from execution.master.two_nodes import TRAIN, expected_losses, losses, steps_of_ranks
from execution.workers.ray_hosts import RayHosts, ray_hosts
from hosts.hosts import Host
from parts import needs
from processes import wait_for

from core_sdk._execution.experiments.calling import call, call_running
from core_sdk._execution.experiments.protocol import GetStatus
from core_sdk._ground.records import AttemptBegun, AttemptOver
from core_sdk._home import Home

pytestmark = [needs("ray", "hosts"), pytest.mark.timeout(400)]

CONFIG = """
name: wide
entrypoint: python -m launch.torch_distributed --nproc-per-node=1 -- python train.py
hyperparameters: {{pause_s: {pause_s}, steps: 20}}
searcher: {{name: single, metric: loss, max_length: 20}}
resources: {{engine: ray, address: "{address}", slots_per_trial: 4}}
max_restarts: 50
"""


class Wide:
    """Two hosts with two CPUs each, which a trial takes together; the master and the home are on a third one."""

    def __init__(self, cluster: RayHosts) -> None:
        self.cluster = cluster
        self.home = Home(cluster.home)
        (cluster.directory / "train.py").write_text(TRAIN)

    def cli(self, *arguments: str) -> str:
        return self.cluster.run_cli(*arguments)

    def create(self, pause_s: float = 0.3) -> int:
        text = CONFIG.format(address=self.cluster.address, pause_s=pause_s)
        (self.cluster.directory / "wide.yaml").write_text(text)
        return int(self.cli("experiment", "create", "wide.yaml", ".").split()[-1])

    def log(self, attempt: int = 1) -> str:
        folder = self.home.folder(1)
        return folder.read_log(attempt, 0, 10**7).decode() if folder.exists() else ""

    def await_step(self, step: int, attempt: int = 1) -> None:
        """Waits until both ranks have printed this step."""
        wait_for(lambda: self.log(attempt).count(f" step {step} ") == 2, timeout_s=120)

    def hosts_by_rank(self, attempt: int = 1) -> list[Host]:
        told = sorted(line for line in self.log(attempt).splitlines() if " told " in line)
        return [next(host for host in self.cluster.hosts if host.name == line.split()[-1]) for line in told]

    def ends(self, experiment_id: int) -> list[tuple[str, str]]:
        events = events_of(self.home, experiment_id)
        return [(event.outcome, event.reason) for event in events if isinstance(event, AttemptOver)]

    def attempts(self, experiment_id: int) -> list[int]:
        return [event.attempt for event in events_of(self.home, experiment_id) if isinstance(event, AttemptBegun)]

    def processes(self) -> list[psutil.Process]:
        """Returns what runs the training or a part of it."""
        found = [process for host in self.cluster.hosts for process in _processes_on(host)]
        return [process for process in found if "train.py" in _command(process)]

    def kill_master(self) -> None:
        self.cluster.hosts[0].run(["kill", "-9", str(call(self.home.root, GetStatus()).pid)])

    def kill(self, host: Host, victim: str) -> None:
        """Kills the processes of this kind on a host, if there are any."""
        for process in _processes_on(host):
            if _kind(process) == victim:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def spooled(self, name: str) -> list[Path]:
        """Returns the files of this name in the spools of the hosts."""
        return [path for index in (1, 2) if (path := self.cluster.spool_of(index) / name).exists()]

    def num_lines(self) -> int:
        """Returns the number of lines that all attempts have printed."""
        return sum(self.log(attempt).count("\n") for attempt in range(1, 40))

    def await_lines(self, num_lines: int, experiment_id: int) -> None:
        """Waits for so many lines, or the end of the experiment."""

        def has_come() -> bool:
            search = self.home.experiment(experiment_id).read().search
            return self.num_lines() >= num_lines or (search is not None and search.has_ended)

        wait_for(has_come, timeout_s=120)

    def left(self) -> list[Path]:
        """Returns what is left of trials in the spools of the hosts."""
        spools = [self.cluster.spool_of(index) for index in (1, 2)]
        return [path for spool in spools for path in (*spool.glob("runs/*"), *spool.glob("checkpoints/[!.]*"))]

    def check_all_is_told(self) -> None:
        assert losses(self.home) == pytest.approx(expected_losses(2, 20))
        assert steps_of_ranks(self.home) == {rank: list(range(1, 21)) for rank in (0, 1)}
        assert self.left() == []
        assert self.processes() == []


@pytest.fixture(scope="module")
def three_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHosts]:
    with ray_hosts(tmp_path_factory.mktemp("homes"), 3, num_cpus_of_first=0) as cluster:
        yield cluster


@pytest.fixture
def home(three_hosts: RayHosts, tmp_path: Path) -> Home:
    """The home in which this test's masters work."""
    return Home(three_hosts.for_test(tmp_path).home)


@pytest.fixture
def wide(three_hosts: RayHosts, tmp_path: Path) -> Iterator[Wide]:
    wide = Wide(three_hosts.for_test(tmp_path))
    for host in list(three_hosts.hosts)[1:]:
        if not any(process.name() == "raylet" for process in _processes_on(host)):  # a test before has failed
            three_hosts.start_node(host)
    yield wide
    status = call_running(wide.home.root, GetStatus())
    for experiment in status.experiments if status else ():
        wide.cli("experiment", "kill", str(experiment.experiment_id))


def test_a_lost_node_ends_the_attempt_on_the_others_within_seconds(wide: Wide) -> None:
    """The attempt goes on from its newest checkpoint once there are two nodes again, and no report is lost or double.

    What the lost node alone had told comes home later, and counts as superseded.
    """
    experiment_id = wide.create()
    wide.await_step(3)
    lost = wide.hosts_by_rank()[1]

    lost.kill_all()
    killed_at = time.monotonic()
    wait_for(lambda: not wide.processes(), timeout_s=60)
    ended_s = time.monotonic() - killed_at
    wait_for(lambda: len(wide.ends(experiment_id)) == 1, timeout_s=60)
    wide.cluster.start_node(lost)

    assert await_end(wide.home, experiment_id).state == "COMPLETED"
    assert ended_s < 15
    (first, reason), last = wide.ends(experiment_id)
    assert (first, last) == ("failed", ("completed", ""))
    assert reason == f"its node {lost.name} has died" or "rank 1" in reason
    assert wide.attempts(experiment_id) == [1, 2]
    assert int(wide.log(2).split(" step ")[1].split()[0]) > 3
    wide.check_all_is_told()


@pytest.mark.parametrize("victim", ["raylet", "agent", "rank"])
def test_whatever_dies_on_a_node_ends_the_attempt_on_both(wide: Wide, victim: str) -> None:
    """The attempt goes on from its newest checkpoint; no report is lost or double, and no process is left."""
    experiment_id = wide.create()
    wide.await_step(3)
    host = wide.hosts_by_rank()[1]

    wide.kill(host, victim)
    if victim == "raylet":
        wait_for(lambda: len(wide.ends(experiment_id)) == 1, timeout_s=90)
        host.kill_all()
        wide.cluster.start_node(host)

    assert await_end(wide.home, experiment_id).state == "COMPLETED"
    assert [outcome for outcome, _ in wide.ends(experiment_id)] == ["failed", "completed"]
    assert wide.attempts(experiment_id) == [1, 2]
    wide.check_all_is_told()


def test_an_attempt_over_two_nodes_outlives_its_master_and_its_actors(wide: Wide) -> None:
    """The next master finds the attempt on both nodes, and brings home what they have told meanwhile."""
    experiment_id = wide.create()
    wide.await_step(3)

    wide.kill_master()
    for host in list(wide.cluster.hosts)[1:]:
        wide.kill(host, "actor")
    wait_for(lambda: any("step 12 " in path.read_text() for path in wide.spooled("runs/1/1.log")), timeout_s=60)
    wide.cli("master", "up")

    assert await_end(wide.home, experiment_id).state == "COMPLETED"
    assert wide.attempts(experiment_id) == [1]
    wide.check_all_is_told()


def test_a_node_that_dies_while_there_is_no_master_is_noticed_by_the_next_one(wide: Wide) -> None:
    """The next master ends what is left of the attempt on the other node, and lets it go on."""
    experiment_id = wide.create()
    wide.await_step(3)
    first = wide.hosts_by_rank()[0]

    wide.kill_master()
    first.kill_all()
    wide.cli("master", "up")
    wait_for(lambda: len(wide.ends(experiment_id)) == 1, timeout_s=90)
    wide.cluster.start_node(first)

    assert await_end(wide.home, experiment_id).state == "COMPLETED"
    assert wide.attempts(experiment_id) == [1, 2]
    wide.check_all_is_told()


def test_a_pause_and_a_kill_reach_both_nodes(wide: Wide) -> None:
    """A paused trial goes on from there; a killed one leaves no process and no slot taken."""
    experiment_id = wide.create()
    wide.await_step(3)

    wide.cli("experiment", "pause", str(experiment_id))
    wait_for(lambda: wide.ends(experiment_id) == [("paused", "the experiment is paused")], timeout_s=60)
    paused_at = len(losses(wide.home))
    wide.cli("experiment", "activate", str(experiment_id))
    wide.await_step(paused_at + 1, attempt=2)
    wide.cli("experiment", "kill", str(experiment_id))

    assert await_end(wide.home, experiment_id).state == "CANCELED"
    assert wide.processes() == []
    assert wide.left() == []
    assert await_end(wide.home, wide.create(pause_s=0)).state == "COMPLETED"


def test_random_kills_lose_nothing(wide: Wide) -> None:
    """Master, agents, ranks, actors and nodes are killed at random, and every report is there once in the end."""
    random_ = random.Random(7)
    experiment_id = wide.create(pause_s=1.0)
    wide.await_step(1)
    for _ in range(12):
        host = random_.choice(list(wide.cluster.hosts)[1:])
        victim = random_.choice(["master", "agent", "rank", "actor", "node"])
        if victim == "master":
            wide.kill_master()
            wide.cli("master", "up")
        elif victim == "node":
            host.kill_all()
            wide.cluster.start_node(host)
        else:
            wide.kill(host, victim)
        wide.await_lines(wide.num_lines() + 3, experiment_id)

    assert await_end(wide.home, experiment_id).state == "COMPLETED"
    attempts = wide.attempts(experiment_id)
    assert attempts == list(range(1, len(attempts) + 1))
    wide.check_all_is_told()


def _processes_on(host: Host) -> Iterator[psutil.Process]:
    for pid in host.living():
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _kind(process: psutil.Process) -> str:
    """Returns the part that a process of a host has in an attempt; empty if it has none."""
    command = _command(process)
    try:
        if process.name() == "raylet":
            return "raylet"
        if "AttemptActor" in command:
            return "actor"
        if command.endswith("train.py") and "launch.torch_distributed" not in command:
            return "rank"
        is_agent = any("launch.torch_distributed" in _command(child) for child in process.children())
        return "agent" if is_agent and "launch.torch_distributed" not in command else ""
    except psutil.NoSuchProcess:
        return ""
