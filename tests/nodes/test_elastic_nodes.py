"""Trainings whose nodes come and go: what is left goes on as the trial's next attempt, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hosts.hosts import Host, host_group
from parts import needs

from nodes.conftest import TheTrial
from nodes.launchers import NodeLaunch, assert_counted_once, elastic, launcher_argv

pytestmark = [needs("hosts"), pytest.mark.timeout(600)]

Loss = Callable[[Host, NodeLaunch], None]
_LOSSES: dict[str, Loss] = {
    "its host dies": lambda host, launch: host.kill(),
    "its cable is cut": lambda host, launch: host.cut(),
    "its launcher is killed": lambda host, launch: launch.kill(),
}


def _start(host: Host, folder: Path, num_nodes: str, *, meeting_host: Host) -> NodeLaunch:
    return NodeLaunch(host, folder, launcher_argv(elastic(num_nodes, meeting_host=meeting_host), step_s=0.1))


def test_a_node_that_comes_later_may_become_the_first(folder: Path, the_trial: TheTrial) -> None:
    """Rank 0 moves to a host where nothing is known of the trial, and goes on with it."""
    with host_group(2) as hosts:
        launches = [_start(hosts[1], folder, "1:2", meeting_host=hosts[1])]
        launches[0].await_step(3)

        launches.append(_start(hosts[0], folder, "1:2", meeting_host=hosts[1]))

        launches[1].read_until("on h1, rank 0 of 2")
        (folder / "enough").touch()
        assert [launch.wait() for launch in launches] == [0, 0]
    assert_counted_once(the_trial.read(), num_attempts=2)
    assert "from step 0 on h1" not in launches[1].output


@pytest.mark.parametrize("loss", _LOSSES)
def test_the_rest_goes_on_when_a_node_is_lost(folder: Path, the_trial: TheTrial, loss: str) -> None:
    """When a node is lost, the others go on from the newest checkpoint, and reports beyond it are superseded."""
    with host_group(2) as hosts:
        launches = [_start(host, folder, "1:2", meeting_host=hosts[0]) for host in hosts]
        launches[0].read_until("rank 0 of 2")
        launches[0].await_step(7)

        _LOSSES[loss](hosts[1], launches[1])

        launches[0].read_until("rank 0 of 1")
        (folder / "enough").touch()
        assert launches[0].wait() == 0
    trial = the_trial.read()
    assert_counted_once(trial, num_attempts=2)
    assert {report.metrics["size"] for report in trial.iter_metrics("training")} == {1, 2}
    assert "attempt 2 of 4 begins" in launches[0].errors


def test_a_lost_node_comes_back(folder: Path, the_trial: TheTrial) -> None:
    """A training goes from three hosts to two and back to three, in three attempts of one trial."""
    with host_group(3) as hosts:
        launches = [_start(host, folder, "2:3", meeting_host=hosts[0]) for host in hosts]
        launches[0].read_until("rank 0 of 3")
        launches[0].await_step(5)
        launches[1].kill()
        launches[0].read_until("rank 0 of 2")

        launches[1] = _start(hosts[1], folder, "2:3", meeting_host=hosts[0])

        launches[1].read_until("of 3")
        (folder / "enough").touch()
        assert [launch.wait() for launch in launches] == [0, 0, 0]
    assert_counted_once(the_trial.read(), num_attempts=3)


def test_one_restart_is_enough_for_one_failure(folder: Path, the_trial: TheTrial) -> None:
    """The ranks of the new attempt do not fail for want of a peer that has not been started yet."""
    (folder / "fail-at-5-on-1").touch()
    with host_group(2) as hosts:
        options = [option for option in elastic("2", meeting_host=hosts[0]) if "restarts" not in option]
        launches = [NodeLaunch(host, folder, launcher_argv([*options, "--max-restarts=1"])) for host in hosts]
        launches[0].await_step(6)
        (folder / "enough").touch()

        assert [launch.wait() for launch in launches] == [0, 0]
    assert_counted_once(the_trial.read(), num_attempts=2)


@pytest.mark.parametrize("loss", _LOSSES)
def test_without_the_meeting_place_the_training_ends(folder: Path, loss: str) -> None:
    """If the host of the rendezvous endpoint is lost, the others end with an error that says so, and do not wait."""
    with host_group(2) as hosts:
        launches = [_start(host, folder, "1:2", meeting_host=hosts[0]) for host in hosts]
        launches[1].read_until("rank 1 of 2")
        launches[1].await_step(3)

        _LOSSES[loss](hosts[0], launches[0])

        assert launches[1].wait() == 1
    assert "the nodes cannot meet without 10.77.0.1:29400, which is lost" in launches[1].errors
