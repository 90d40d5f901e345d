"""The attempts of an experiment as jobs: before their scripts begin, and while they run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.master.pools._pool import Begun, Claim, Execution, newest_supervised
from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.commands import JobState
from core_sdk._execution.slurm.submission import note_end
from core_sdk._execution.slurm.watching import WatchedJob
from core_sdk._ground.records import AttemptOutcome
from core_sdk._home.attempts.running import never_began, take_for_dead
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import AttemptError

CLUSTER = "slurm"
# A job that is killed before its attempt has begun is submitted again, so often in all.
_MOST_JOBS = 3


class Owner(Protocol):
    """The part of the pool that submits, watches and ends jobs, as the jobs see it."""

    def submit(self, claim: JobClaim) -> None: ...

    def watch(self, job: PoolJob) -> None: ...

    def forget(self, job: PoolJob) -> None: ...

    def tell_slurm(self, command: Callable[[], None]) -> None: ...

    def end(self, job: PoolJob) -> None: ...


class PoolJob(WatchedJob):
    """A job of an experiment. One thread calls `hear` and `look`."""

    def look(self) -> bool:
        """Looks into the home. Returns whether something has ended."""
        return False

    @property
    def is_doubtful(self) -> bool:
        """Whether the home says that it may have ended, and Slurm has to tell."""
        return False


class JobClaim(PoolJob, Claim):
    """An attempt whose job has to be submitted, waits, or has just started."""

    node = CLUSTER

    def __init__(self, owner: Owner, order: AttemptOrder) -> None:
        super().__init__(order.folder)
        self.order = order
        self.slot_ids = tuple(range(order.num_slots))
        self.since = time.time()
        self._owner = owner
        self._before = max(self.folder.attempts(), default=0)
        self._num_jobs = 1
        self._begun: Begun | None = None
        self._problem = ""

    @property
    def wait(self) -> str:
        if not self.job_id:
            return "its job is being submitted"
        return self.words

    @property
    def is_over(self) -> bool:
        return self.is_abandoned or self._begun is not None or bool(self._problem)

    def take(self, folder: TrialFolder, job_id: str) -> None:
        """Takes a job that was submitted for the attempt."""
        if folder.trial_id != self.folder.trial_id:
            self.folder.clear()
        self.folder, self.job_id = folder, job_id
        if self.is_abandoned:
            self._owner.end(self)
        else:
            self._owner.watch(self)

    def fail(self, problem: str) -> None:
        self._problem = problem

    def begun(self) -> Begun:
        if self._begun is None:
            raise AttemptError(self._problem)
        return self._begun

    def start(self) -> Execution:
        execution = JobExecution(self._owner, self.folder)
        self._owner.forget(self)
        return execution

    def release(self) -> None:
        self._owner.forget(self)  # the next look of the master finds the attempt, which runs

    def _take_back(self) -> None:
        self._owner.forget(self)
        self._owner.end(self)

    def leave(self) -> None:
        self.is_abandoned = True
        self._owner.forget(self)

    def look(self) -> bool:
        if (number := newest_begun(self.folder)) > self._before:
            self._begun = Begun(number, self.slot_ids, CLUSTER)
        elif self.over_at is not None and (self.is_long_over or self._told()):
            if not self._told() and was_killed(self.state) and self._num_jobs < _MOST_JOBS:
                self._submit_again()
            else:
                self._problem = self._told() or self.end
        return self.is_over

    def _submit_again(self) -> None:
        self._owner.forget(self)
        self._owner.end(self)  # Slurm may know one that is gone after all
        self.job_id, self.state, self.over_at = "", None, None
        self._num_jobs += 1
        self._owner.submit(self)

    def _told(self) -> str:
        record = self.folder.read_slurm_job()
        return record.problem if record is not None else ""


class JobExecution(PoolJob, Execution):
    """An attempt that has begun in its job."""

    def __init__(self, owner: Owner, folder: TrialFolder) -> None:
        record = folder.read_slurm_job()
        super().__init__(folder, record.job_id if record is not None else "")
        self._owner = owner
        self._is_running = True
        self._is_over = False
        self._is_killed = False
        owner.watch(self)

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def is_doubtful(self) -> bool:
        return not self._is_running

    @property
    def loss(self) -> tuple[AttemptOutcome, str] | None:
        return None if self.state is None or self._is_killed else loss_of(self.job_id, self.state)

    @property
    def lost_node(self) -> str:
        if self.state is None or self.state.name != "NODE_FAIL":
            return ""
        return loss_of(self.job_id, self.state)[1]

    def signal(self, number: int) -> None:
        self._owner.tell_slurm(lambda: commands.cancel([self.job_id], "--batch", "--signal=USR2"))

    def kill(self) -> None:
        self._is_killed = True
        self._owner.end(self)

    def look(self) -> bool:
        self._is_running = self.folder.running_attempt() is not None
        if self._is_running:
            if self.is_long_over:
                take_for_dead(self.folder)
            return False
        record = self.folder.read_slurm_job()
        if record is None or record.is_over or self.over_at is not None:
            self.problem = record.problem if record is not None else ""
            self._owner.forget(self)
            self._is_over = True
        return self._is_over


def was_killed(state: JobState | None) -> bool:
    """Returns whether a job did not end by itself, nor because of its user. Pure."""
    return state is not None and state.name != "CANCELLED" and state.reason != "NonZeroExitCode"


def loss_of(job_id: str, state: JobState) -> tuple[AttemptOutcome, str]:
    """Returns the outcome of an attempt that has recorded no end, from the end of its job. Pure."""
    outcomes: Mapping[str, AttemptOutcome] = {"CANCELLED": "canceled", "PREEMPTED": "lost"}
    words = {
        "CANCELLED": "was canceled with scancel",
        "NODE_FAIL": "has lost a node",
        "OUT_OF_MEMORY": "has taken more memory than it had asked for",
        "PREEMPTED": "was preempted",
        "gone": "is gone from Slurm",
    }
    told = words.get(state.name, f"has ended as {state.name}")
    return outcomes.get(state.name, "failed"), f"its job {job_id} {told}"


def newest_begun(folder: TrialFolder) -> int:
    """Returns the newest attempt that a job has begun; 0 if there is none.

    A job writes the trial's record last: until then a master would take it for one that somebody has removed.
    """
    number = newest_supervised(folder)
    return number if number and folder.exists() and not never_began(folder, number) else 0


def note_own_end(job: WatchedJob) -> None:
    """Records that this home has ended the job, and nobody else."""
    with contextlib.suppress(OSError):
        note_end(job.folder, job.job_id)
