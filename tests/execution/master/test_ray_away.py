"""Attempts on a Ray cluster that does not answer, or that has lost a node: what the home shows of them counts."""

from __future__ import annotations

import pytest
from home.journals import new_trial, record

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.master._judging import judge
from core_sdk._execution.master.pools._pool import Begun
from core_sdk._execution.master.pools.ray import ClusterPool
from core_sdk._execution.master.pools.ray._messages import Gone
from core_sdk._execution.master.pools.ray._pool import _ClusterExecution
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended, ExitRecord
from core_sdk._home import Home, TrialFolder


class StillPool(ClusterPool):
    """A pool whose cluster tells nothing."""

    def __init__(self) -> None:
        self.cluster = "10.0.0.1:6379"
        self.problem = ""
        self.names: set[str] = set()

    def host_of(self, node_id: str) -> str:
        return node_id

    def follow(self, name: str, followed: object) -> None:
        self.names.add(name)

    def forget(self, name: str, followed: object) -> None:
        self.names.discard(name)


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial whose first attempt was claimed."""
    folder = new_trial(home)
    folder.run_info_path(1).write_text("{}")
    return folder


def execution_of(folder: TrialFolder, pool: ClusterPool) -> _ClusterExecution:
    order = AttemptOrder("1.1", folder.home_root, 1, "", folder.trial_id, True, 1, "", {}, 0, None)
    return _ClusterExecution(pool, order, Begun(1, (0,), "n1"))


@pytest.mark.parametrize("has_told_end", [False, True])
def test_an_attempt_that_has_ended_runs_no_more_although_its_cluster_is_away(
    folder: TrialFolder, has_told_end: bool
) -> None:
    """While its agent lives it runs. Its end counts when it is known that the cluster cannot tell it."""
    pool = StillPool()
    agent = AliveLock(folder.supervised_path(1))
    execution = execution_of(folder, pool)

    pool.problem = "the Ray cluster at 10.0.0.1:6379 cannot be used: it does not answer any more"
    is_over = [execution.is_over]
    pool.problem = ""
    if has_told_end:
        folder.write_exit(1, ExitRecord(code=0, time=1.0))
    agent.release()
    is_over.append(execution.is_over)
    pool.problem = "the Ray cluster at 10.0.0.1:6379 cannot be used: it does not answer any more"
    is_over.append(execution.is_over)

    assert is_over == [False, False, True]
    assert execution.loss == ("failed", "it has ended while the Ray cluster at 10.0.0.1:6379 did not answer")
    assert pool.names == set()


def test_an_attempt_whose_node_does_not_see_the_home_is_waited_for(folder: TrialFolder) -> None:
    """The home has no lock of its agent, so that only the cluster can tell how it has ended."""
    pool = StillPool()
    execution = execution_of(folder, pool)

    pool.problem = "the Ray cluster at 10.0.0.1:6379 cannot be used: it does not answer any more"

    assert not execution.is_over
    assert pool.names == {"1.1"}


def test_an_error_that_follows_from_the_death_of_a_node_names_the_node(folder: TrialFolder) -> None:
    """The other nodes of a trial only know that a connection has ended. Their words come second."""
    error = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.3]:5321"
    record(folder, Ended(time=2.0, outcome="error", error=error))
    execution = execution_of(folder, StillPool())

    execution.hear(Gone("1.1", "n1"))
    outcome = judge(
        folder, was_asked=False, was_killed=False, loss=execution.loss, hopeless=(), lost_node=execution.lost_node
    )

    assert outcome == ("failed", f"its node n1 has died: {error}")
