"""Trainings in the pods of an indexed Job: what Kubernetes gives a pod is made here, and the launchers are real."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hosts.hosts import HostGroup, host_group
from parts import needs

from core_sdk.client import TrialState
from nodes.conftest import TheTrial
from nodes.launchers import TRAINING, NodeLaunch, assert_counted_once

pytestmark = [needs("hosts"), pytest.mark.timeout(600)]

_DOMAIN = "workers.default.svc.cluster.local"
_COMMAND = [sys.executable, "-m", "launch.torch_distributed", str(TRAINING), "0.05"]


def _as_pods(hosts: HostGroup, folder: Path) -> None:
    """Gives each host a pod's name of its Job, and the names of the others as their Service does."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{host.address} digits-{index}.{_DOMAIN} digits-{index}" for index, host in enumerate(hosts)]
    names = folder / "pods"
    names.write_text("\n".join(lines) + "\n")
    for index, host in enumerate(hosts):
        host.bind(names, "/etc/hosts")
        host.run(["hostname", f"digits-{index}"])


def _start(hosts: HostGroup, folder: Path) -> Sequence[NodeLaunch]:
    """Starts the manifest's command in each pod, without an option."""
    variables = {"CORE_SDK_NUM_NODES": str(len(hosts)), "CORE_SDK_JOB_ID": "digits"}
    return [
        NodeLaunch(host, folder, _COMMAND, JOB_COMPLETION_INDEX=str(index), **variables)
        for index, host in enumerate(hosts)
    ]


def test_an_evicted_pod_stops_all_and_its_successor_goes_on(folder: Path, the_trial: TheTrial) -> None:
    """SIGTERM to one pod stops the whole training, and the pods that follow are the trial's next attempt."""
    with host_group(2) as hosts:
        _as_pods(hosts, folder)
        first = _start(hosts, folder)
        first[0].await_step(3)
        first[1].stop()
        assert [launch.wait() for launch in first] == [75, 75]
        stopped = the_trial.read()

        second = _start(hosts, folder)

        second[1].read_until("from step")
        (folder / "enough").touch()
        assert [launch.wait() for launch in second] == [0, 0]
    assert stopped.state is TrialState.PAUSED
    assert "on digits-1, rank 1 of 2" in second[1].output
    assert_counted_once(the_trial.read(), num_attempts=2)


def test_pods_that_replace_killed_ones_go_on(folder: Path, the_trial: TheTrial) -> None:
    """When a node dies with its pod, the other pod fails, and the new pods continue the trial."""
    with host_group(2) as hosts:
        _as_pods(hosts, folder)
        first = _start(hosts, folder)
        first[0].await_step(3)
        hosts[1].kill()
        assert first[0].wait() == 1

    with host_group(2) as hosts:
        _as_pods(hosts, folder)
        second = _start(hosts, folder)
        second[1].read_until("from step")
        (folder / "enough").touch()

        assert [launch.wait() for launch in second] == [0, 0]
    assert_counted_once(the_trial.read(), num_attempts=2)
