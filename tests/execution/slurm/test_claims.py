"""A job of an experiment as its master sees it: when its attempt has begun, and when it is submitted again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.master.pools.slurm._jobs import JobClaim, PoolJob
from core_sdk._execution.slurm.commands import JobState
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import TrialRecord
from core_sdk._home import Home
from core_sdk.errors import AttemptError


class Submitter:
    """Takes what a claim asks for."""

    def __init__(self) -> None:
        self.num_submitted = 0

    def submit(self, claim: JobClaim) -> None:
        self.num_submitted += 1

    def watch(self, job: PoolJob) -> None: ...

    def forget(self, job: PoolJob) -> None: ...

    def end(self, job: PoolJob) -> None: ...

    def tell_slurm(self, command: Callable[[], None]) -> None: ...


def claim_of(home: Home, submitter: Submitter) -> JobClaim:
    """Returns the claim of a trial whose job 7_1 was submitted, and which has no record yet."""
    folder = Home.create(home.root).create_trial()
    order = AttemptOrder("1.1", home.root, 1, "", folder.trial_id, True, 1, "", {}, 0, None)
    claim = JobClaim(submitter, order)
    claim.take(folder, "7_1")
    return claim


def test_an_attempt_has_begun_when_its_trial_is_recorded(home: Home) -> None:
    """A job writes the record of a new trial last; before that the master does not take the trial for a removed one."""
    claim = claim_of(home, Submitter())
    folder = claim.folder
    folder.run_info_path(1).write_text("{}")
    lock = AliveLock(folder.supervised_path(1))

    before = claim.look()
    folder.write_record(TrialRecord(trial_id=folder.trial_id, experiment_id=1, created=0.0, seed=0))
    after = claim.look()

    lock.release()
    assert (before, after, claim.begun().number) == (False, True, 1)


def end(claim: JobClaim, state: JobState | None) -> bool:
    """Lets the claim hear that its job is over, since so long that all it has written must have come."""
    claim.hear(state)
    claim.over_at = time.monotonic() - 3600
    return claim.look()


@pytest.mark.parametrize("state", [JobState("FAILED", "RaisedSignal:9(Killed)"), JobState("NODE_FAIL"), None])
def test_a_job_that_is_killed_before_its_attempt_is_submitted_again(home: Home, state: JobState | None) -> None:
    """A job that was killed, whose node has died or that Slurm has lost is submitted again, up to twice."""
    submitter = Submitter()
    claim = claim_of(home, submitter)

    looks = []
    for number in (2, 3, 4):
        looks.append(end(claim, state))
        claim.take(claim.folder, f"{number}_1")

    assert (looks, submitter.num_submitted) == ([False, False, True], 2)
    with pytest.raises(AttemptError, match="nothing of it has reached the home"):
        claim.begun()


@pytest.mark.parametrize("state", [JobState("CANCELLED"), JobState("FAILED", "NonZeroExitCode")])
def test_a_job_that_ends_by_itself_or_by_its_user_is_not_submitted_again(home: Home, state: JobState) -> None:
    """A job that was canceled, or has failed by itself, would do no better the next time."""
    submitter = Submitter()

    assert end(claim_of(home, submitter), state)
    assert submitter.num_submitted == 0
