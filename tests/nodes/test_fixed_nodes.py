"""Trainings on several hosts, a launcher on each: they begin, stop, fail and end as one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hosts.hosts import host_group
from parts import needs

from core_sdk.client import TrialState
from nodes.conftest import TheTrial
from nodes.launchers import NodeLaunch, assert_counted_once, fixed, launcher_argv, start_fixed

pytestmark = [needs("hosts"), pytest.mark.timeout(600)]
# The ranks' channel and the launchers notice after half a minute that a host is silent; the rest is a busy machine's.
_SILENCE_S = 90.0


def _stop_step(launch: NodeLaunch) -> int:
    found = re.search(r"stopped at step (\d+)", launch.output)
    assert found is not None, launch.output
    return int(found[1])


def test_a_stop_of_one_node_stops_all_at_the_same_step(folder: Path, the_trial: TheTrial) -> None:
    """SIGTERM to one node's launcher stops all nodes at the same step, and both launchers exit with 75."""
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder)
        launches[1].await_step(3)

        launches[1].stop()

        assert [launch.wait() for launch in launches] == [75, 75]
    assert _stop_step(launches[0]) == _stop_step(launches[1])
    assert the_trial.read().state is TrialState.PAUSED
    assert "rank 1 of 2" in launches[1].output


def test_a_stopped_training_is_resumed_on_the_same_nodes(folder: Path, the_trial: TheTrial) -> None:
    """A stopped training is resumed by `trial resume` on the first node and the launcher on the others."""
    core_sdk = [sys.executable, "-m", "core_sdk._interfaces.cli"]
    argvs = [launcher_argv(fixed(2, rank)) for rank in range(2)]
    with host_group(2) as hosts:
        first = [
            NodeLaunch(hosts[0], folder, [*core_sdk, "run", "--", *argvs[0]]),
            NodeLaunch(hosts[1], folder, argvs[1]),
        ]
        first[0].await_step(3)
        first[1].stop()
        assert [launch.wait() for launch in first] == [75, 75]

        second = [
            NodeLaunch(hosts[0], folder, [*core_sdk, "trial", "resume", "1"]),
            NodeLaunch(hosts[1], folder, argvs[1]),
        ]

        second[1].read_until("from step")
        second[1].read_until("\n[rank=1] step")
        (folder / "enough").touch()
        assert [launch.wait() for launch in second] == [0, 0]
    assert_counted_once(the_trial.read(), num_attempts=2)


@needs("latency")
def test_a_slow_network_changes_nothing_but_the_time(folder: Path, the_trial: TheTrial) -> None:
    """With 20 ms between three hosts, a training has the same reports in one attempt."""
    with host_group(3, latency_s=0.02) as hosts:
        launches = start_fixed(hosts, folder)
        launches[0].await_step(3)
        (folder / "enough").touch()

        assert [launch.wait() for launch in launches] == [0, 0, 0]
    assert_counted_once(the_trial.read(), num_attempts=1)


def test_a_rank_that_fails_is_named_on_all_nodes(folder: Path) -> None:
    """When a rank fails, all launchers name it with its traceback, and exit with its status."""
    (folder / "fail-at-3-on-1").touch()
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder)

        assert [launch.wait() for launch in launches] == [1, 1]
    for launch in launches:
        assert "rank 1 of 2 failed first (host h2" in launch.errors
        assert "raised ValueError: no good at step 3" in launch.errors


def test_failures_are_followed_by_restarts_on_all_nodes(folder: Path, the_trial: TheTrial) -> None:
    """After a failure on any node, the launchers of all nodes restart together."""
    for step, rank in ((5, 1), (7, 0)):
        (folder / f"fail-at-{step}-on-{rank}").touch()
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder, "--max-restarts=2")
        launches[0].await_step(9)
        (folder / "enough").touch()

        assert [launch.wait() for launch in launches] == [0, 0]
    assert_counted_once(the_trial.read(), num_attempts=3)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_launcher_that_is_killed_ends_the_other_nodes(folder: Path, victim: int) -> None:
    """When a launcher is killed, its ranks die, and the other node ends because a peer was lost."""
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder)
        launches[1 - victim].await_step(3)

        launches[victim].kill()

        assert launches[1 - victim].wait(_SILENCE_S) == 1
    assert f"rank {1 - victim} of 2 failed first" in launches[1 - victim].errors
    assert "the consequence of another rank's end" in launches[1 - victim].errors


@pytest.mark.parametrize("victim", [0, 1])
def test_a_host_that_dies_ends_the_other_nodes(folder: Path, victim: int) -> None:
    """When a host dies, the first or another, the other node ends with an error."""
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder)
        launches[1 - victim].await_step(3)

        hosts[victim].kill()

        assert launches[1 - victim].wait(_SILENCE_S) == 1
    assert f"rank {1 - victim} of 2 failed first" in launches[1 - victim].errors


def test_a_cable_that_is_cut_ends_both_sides(folder: Path) -> None:
    """When the cable between two hosts is cut, both launchers end by themselves."""
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder)
        launches[0].await_step(3)

        hosts[1].cut()

        assert [launch.wait(_SILENCE_S) for launch in launches] == [1, 1]
    for launch in launches:
        assert "RankDiedError" in launch.errors or "is lost: its host is down or cut off" in launch.errors


def test_ranks_that_wait_in_torch_do_not_wait_for_a_host_that_is_cut_off(folder: Path) -> None:
    """When a host is cut off, the launchers end ranks that wait in torch's all-reduce."""
    (folder / "hang-at-4-on-1").touch()
    with host_group(2) as hosts:
        launches = start_fixed(hosts, folder)
        launches[0].await_step(3)

        hosts[1].cut()

        assert [launch.wait(_SILENCE_S) for launch in launches] == [1, 1]
    assert "the launcher of node h2 is lost" in launches[0].errors
    assert "the launcher of node 10.77.0.1:29400 is lost" in launches[1].errors
