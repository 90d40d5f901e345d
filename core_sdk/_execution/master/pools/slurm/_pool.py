"""The pool of a Slurm cluster, in the master."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.protocol import ClusterStatus
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._queue import Decisions, Demand, levels
from core_sdk._execution.master.pools._pool import (
    Begun,
    Claim,
    Execution,
    MakeClaim,
    ResourcePool,
    SlotsTaken,
    take_back_unbegun,
    unrecorded_attempt,
)
from core_sdk._execution.master.pools.slurm._dispatcher import Dispatcher, is_passing, request_of
from core_sdk._execution.master.pools.slurm._jobs import CLUSTER, JobClaim, JobExecution
from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.script import experiment_script
from core_sdk._execution.slurm.submission import place_of
from core_sdk._home.folders import Home, TrialFolder
from core_sdk.errors import SlurmError

# Slurm decides how many jobs run. This only has to be more than any experiment wants.
_ROOM = 1_000_000


class SlurmPool(ResourcePool):
    """Runs each attempt as a job of Slurm."""

    cluster = CLUSTER

    def __init__(self, home: Home, tell: Callable[[], None]) -> None:
        """`tell` is called, in any thread, when a claim is complete, or an attempt has ended."""
        self._home = home
        self._dispatcher = Dispatcher(home, tell)
        self._refusals: dict[int, Future[str]] = {}

    @property
    def problem(self) -> str:  # type: ignore[override]
        return self._dispatcher.problem

    def rooms(self) -> Mapping[str, int]:
        return {CLUSTER: _ROOM}

    def refusal(self, submission: SubmittedExperiment) -> str | None:
        experiment_id = submission.experiment_id
        if experiment_id not in self._refusals:
            answer = self._refusals[experiment_id] = Future[str]()
            self._dispatcher.tell_slurm(lambda: answer.set_result(self._refusal(submission)))
        if not self._refusals[experiment_id].done():
            return None
        return self._refusals.pop(experiment_id).result()  # after a refusal another experiment gets its id

    def _refusal(self, submission: SubmittedExperiment) -> str:
        """Returns why Slurm would take no job of the experiment; empty if it would, or does not answer now."""
        experiment_id = submission.experiment_id
        beginning = f"experiment {experiment_id} cannot run in Slurm"
        try:
            request = request_of(submission)
            if problem := request.problem():
                return f"{beginning}: {problem}"
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
                file.write(experiment_script(request, experiment_id, place_of(self._home)))
                file.flush()
                commands.check(Path(file.name))
        except SlurmError as error:
            return "" if is_passing(error) else f"{beginning}. {error}"
        return ""

    def heed(self, demands: Sequence[Demand], decisions: Decisions) -> None:
        self._dispatcher.renice(levels(demands))

    def reserve(self, num_slots: int, used: Collection[int], *, is_blocked: bool) -> MakeClaim | SlotsTaken:
        """Reserves nothing, since Slurm decides which slots the attempt gets."""
        return SlotsTaken() if is_blocked else self._claim

    def _claim(self, order: AttemptOrder) -> Claim:
        claim = JobClaim(self._dispatcher, order)
        self._dispatcher.submit(claim)
        return claim

    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        number = unrecorded_attempt(folder, last_attempt)
        return Begun(number, (), CLUSTER) if number and folder.exists() else None

    def recover(self, order: AttemptOrder, begun: Begun) -> Execution | None:
        folder = order.folder
        if take_back_unbegun(folder, begun.number):
            return None
        return JobExecution(self._dispatcher, folder)

    def status(self) -> ClusterStatus:
        return ClusterStatus(CLUSTER, self.problem, ())

    def close(self) -> None:
        self._dispatcher.close()
