"""The pool of a Slurm cluster, in the master."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from core_sdk.errors import AttemptNotPlacedError, CoreSDKError, SlurmError
from core_sdk.experiments.protocol import ClusterStatus
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.master.pools._pool import Begun, Claim, Execution, ResourcePool
from core_sdk.master.pools.slurm._order import is_same_attempt, ordered_trials, read_order, write_order
from core_sdk.records import AttemptOutcome, SlurmRecord
from core_sdk.slurm import commands
from core_sdk.slurm.commands import JobState
from core_sdk.slurm.script import JobRequest, batch_script
from core_sdk.slurm.submission import note_end, script_path
from core_sdk.tracking.attempts.running import never_began, take_back, take_for_dead
from core_sdk.tracking.home import Home, TrialFolder

logger = logging.getLogger("core_sdk.master")

_CLUSTER = "slurm"
# Slurm decides how many jobs run. This only has to be more than any experiment wants.
_ROOM = 1_000_000
_LOOK_S = 1.0
# Slurm is asked for all jobs at once, seven times a minute.
_ASK_S = 8.0
# How long what a job has written may take to come through the file system.
_LATE_S = 20.0
# Slurm's refusals that end by themselves: the controller is away, or there are too many jobs.
_TRANSIENT = re.compile(r"contact|timed out|temporarily|answered|zero bytes|submit|policy", re.IGNORECASE)


class SlurmPool(ResourcePool):
    """Runs each attempt as a job of Slurm."""

    cluster = _CLUSTER
    largest_node = "Slurm"

    def __init__(self, home: Home, tell: Callable[[], None]) -> None:
        """`tell` is called, in any thread, when a claim is complete, or an attempt has ended."""
        self.identity = home.identity()
        self._home = home
        self._tell = tell
        self._watched: set[_WatchedJob] = set()
        self._changing = threading.Lock()
        self._is_closed = threading.Event()
        # Trials for which an earlier master may have submitted jobs that wait.
        self._left = ordered_trials(home.root)
        self._opened_at = time.monotonic()
        self._requests: dict[int, JobRequest] = {}
        self._refusals: dict[int, Future[str]] = {}
        self._submissions: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._submit, name="core-sdk-sbatch", daemon=True).start()
        threading.Thread(target=self._follow, name="core-sdk-slurm", daemon=True).start()

    def sizes(self) -> Sequence[int]:
        return [_ROOM]

    def rooms(self) -> Mapping[str, int]:
        return {_CLUSTER: _ROOM}

    def refusal(self, submission: SubmittedExperiment) -> str | None:
        experiment_id = submission.experiment_id
        if experiment_id not in self._refusals:
            answer = self._refusals[experiment_id] = Future[str]()
            self.submit(lambda: answer.set_result(self._refusal(submission)))
        if not self._refusals[experiment_id].done():
            return None
        return self._refusals.pop(experiment_id).result()  # after a refusal another experiment gets its id

    def _refusal(self, submission: SubmittedExperiment) -> str:
        """Returns why Slurm would take no job of the experiment; empty if it would, or does not answer now."""
        beginning = f"experiment {submission.experiment_id} cannot run in Slurm"
        self._requests.pop(submission.experiment_id, None)
        if problem := _asked_by(submission, has_gpus=False).problem():
            return f"{beginning}: {problem}"
        try:
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
                file.write(self.script_of(submission, self._home.folder(0)))
                file.flush()
                commands.check(Path(file.name))
        except SlurmError as error:
            return "" if _TRANSIENT.search(error.reason) else f"{beginning}. {error}"
        return ""

    def claim(self, order: AttemptOrder, folder: TrialFolder, used: Collection[int]) -> Claim:
        """Begins an attempt. `used` is ignored, since Slurm decides which slots the attempt gets."""
        return _SlurmClaim(self, order, folder)

    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        number = newest_supervised(folder)
        if number and never_began(folder, number):
            take_back(folder, number)
        elif number > last_attempt:
            return Begun(number, (), _CLUSTER)
        return None

    def recover(self, order: AttemptOrder, folder: TrialFolder, begun: Begun) -> Execution | None:
        if never_began(folder, begun.number):
            take_back(folder, begun.number)
            return None
        return _SlurmExecution(self, folder)

    def status(self) -> ClusterStatus:
        return ClusterStatus(_CLUSTER, self.problem, ())

    def close(self) -> None:
        self._is_closed.set()
        self._submissions.put(lambda: None)

    def submit(self, work: Callable[[], None]) -> None:
        """Lets the pool's thread for submissions do this work, after all that it was given before."""
        self._submissions.put(work)

    def request_of(self, submission: SubmittedExperiment) -> JobRequest:
        """Returns what the jobs of an experiment ask for. Asks Slurm whether slots are GPUs. Raises `SlurmError`."""
        if submission.experiment_id not in self._requests:
            request = _asked_by(submission, has_gpus=False)
            if submission.config.resources.slots_per_trial and commands.has_gpus(request.partition):
                request = _asked_by(submission, has_gpus=True)
            self._requests[submission.experiment_id] = request
        return self._requests[submission.experiment_id]

    def script_of(self, submission: SubmittedExperiment, folder: TrialFolder) -> str:
        """Returns the batch script of a trial's job. Raises `SlurmError`."""
        return batch_script(
            self.request_of(submission),
            trial_id=folder.trial_id,
            home=folder.home_root.absolute(),
            identity=self.identity,
            python=sys.executable,
            module="core_sdk.master.pools.slurm",
        )

    def find_waiting(self, order: AttemptOrder) -> tuple[TrialFolder, int] | None:
        """Returns the trial's folder and the job that an earlier master has submitted for the same attempt, or None."""
        for trial_id in list(self._left):
            folder = self._home.folder(trial_id)
            with contextlib.suppress(CoreSDKError, OSError):
                other, record = read_order(folder), folder.read_slurm_job()
                if other is None or record is None or record.is_over or not is_same_attempt(order, other):
                    continue
                self._left.remove(trial_id)
                state = commands.states([record.job_id]).get(record.job_id)
                if state is not None and not state.is_over:
                    return folder, record.job_id
        return None

    def _end_left(self) -> None:
        """Cancels jobs of an earlier master that wait, and that nobody has asked for since this one began."""
        while self._left:
            folder = self._home.folder(self._left.pop())
            with contextlib.suppress(CoreSDKError, OSError):
                record, is_running = folder.read_slurm_job(), folder.running_attempt() is not None
                if record is not None and not record.is_over and not is_running:
                    end_job(folder, record.job_id)

    def watch(self, watched: _WatchedJob) -> None:
        with self._changing:
            self._watched.add(watched)

    def forget(self, watched: _WatchedJob) -> None:
        with self._changing:
            self._watched.discard(watched)

    def _follow(self) -> None:
        asked_at = 0.0
        while not self._is_closed.wait(_LOOK_S):
            with self._changing:
                watched = list(self._watched)
            is_due = time.monotonic() - asked_at >= _ASK_S
            if self._left and time.monotonic() - self._opened_at > _LATE_S:
                self.submit(self._end_left)
            if is_due:
                asked_at = time.monotonic()
                self._ask(watched)
            num_ended = sum(_look(each) for each in watched)
            if num_ended:
                self._tell()

    def _submit(self) -> None:
        while not self._is_closed.is_set():
            self._submissions.get()()
            self._tell()

    def _ask(self, watched: Sequence[_WatchedJob]) -> None:
        if not (job_ids := {each.job_id for each in watched if each.job_id}):
            return
        try:
            states = commands.states(job_ids)
        except SlurmError as error:
            logger.warning("%s", error)
            return
        for each in watched:
            if each.job_id:
                each.hear(states.get(each.job_id) or JobState("gone"))


def _look(watched: _WatchedJob) -> bool:
    try:
        return watched.look()
    except (CoreSDKError, OSError) as error:  # the master finds out that the trial's files are gone
        logger.debug("%s", error)
        return True


class _WatchedJob(ABC):
    """A job of the pool. The pool's thread calls `hear` and `look`."""

    job_id = 0
    """0 until it is known."""
    state: JobState | None = None
    over_at: float | None = None

    def hear(self, state: JobState) -> None:
        """Takes the job's state, as Slurm tells it."""
        if state != self.state and state.obstacle:
            logger.warning("job %d cannot start: %s", self.job_id, state.obstacle)
        self.state = state
        if state.is_over and self.over_at is None:
            self.over_at = time.monotonic()

    @abstractmethod
    def look(self) -> bool:
        """Looks into the home. Returns whether something has ended."""

    @property
    def is_long_over(self) -> bool:
        return self.over_at is not None and time.monotonic() - self.over_at > _LATE_S


class _SlurmClaim(_WatchedJob, Claim):
    def __init__(self, pool: SlurmPool, order: AttemptOrder, folder: TrialFolder) -> None:
        self.folder = folder
        self.slot_ids = tuple(range(order.num_slots))
        self.node = _CLUSTER
        self._pool = pool
        self._order = order
        self._before = max(folder.attempts(), default=0)
        self._begun: Begun | None = None
        self._problem = ""
        pool.submit(self._submit)

    @property
    def is_over(self) -> bool:
        return self.is_abandoned or self._begun is not None or bool(self._problem)

    def begun(self) -> Begun:
        if self._begun is None:
            raise AttemptNotPlacedError(self._problem)
        return self._begun

    def start(self) -> Execution:
        execution = _SlurmExecution(self._pool, self.folder)
        self._pool.forget(self)
        return execution

    def release(self) -> None:
        self._pool.forget(self)  # the next look of the master finds the attempt, which runs

    def abandon(self) -> None:
        if not self.is_abandoned:
            self.is_abandoned = True
            self._pool.forget(self)
            end_job(self.folder, self.job_id)

    def look(self) -> bool:
        if (number := newest_supervised(self.folder)) > self._before and not never_began(self.folder, number):
            self._begun = Begun(number, self.slot_ids, _CLUSTER)
        elif self.is_long_over or (self.state is not None and self.state.is_over and self._told()):
            name = self.state.name if self.state else ""
            self._problem = self._told() or (
                f"its job {self.job_id} has ended as {name}, and nothing of it has reached the home, which must lie on "
                "a file system that all nodes share"
            )
        return self.is_over

    def _told(self) -> str:
        record = self.folder.read_slurm_job()
        return record.problem if record is not None else ""

    def _submit(self) -> None:
        try:
            if (found := self._pool.find_waiting(self._order)) is not None:
                if found[0].trial_id != self.folder.trial_id:
                    self.folder.clear()
                self.folder, self.job_id = found
            else:
                self.job_id = self._submit_anew()
        except (CoreSDKError, OSError) as error:
            self._problem = str(error)
            return
        if self.is_abandoned:
            end_job(self.folder, self.job_id)
        else:
            self._pool.watch(self)

    def _submit_anew(self) -> int:
        """Submits the job, again and again while Slurm has a reason to refuse it that passes. Raises `SlurmError`."""
        folder = self.folder
        text = self._pool.script_of(self._order.submission(), folder)
        write_order(folder, self._order)
        script_path(folder).write_text(text)
        while True:
            try:
                job_id = commands.submit(script_path(folder))
                folder.write_slurm_job(SlurmRecord(job_id=job_id))
                self._pool.problem = ""
                return job_id
            except SlurmError as error:
                if not _TRANSIENT.search(error.reason) or self.is_abandoned:
                    raise
                self._pool.problem = str(error)
                time.sleep(_ASK_S)


class _SlurmExecution(_WatchedJob, Execution):
    def __init__(self, pool: SlurmPool, folder: TrialFolder) -> None:
        self._pool = pool
        self._folder = folder
        self._is_over = False
        self._is_killed = False
        record = folder.read_slurm_job()
        self.job_id = record.job_id if record is not None else 0
        pool.watch(self)

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def loss(self) -> tuple[AttemptOutcome, str] | None:
        return None if self.state is None or self._is_killed else loss_of(self.job_id, self.state)

    def signal(self, number: int) -> None:
        _in_thread(lambda: commands.cancel(self.job_id, "--batch", "--signal=USR2"))

    def kill(self) -> None:
        self._is_killed = True
        end_job(self._folder, self.job_id)

    def look(self) -> bool:
        record, is_running = self._folder.read_slurm_job(), self._folder.running_attempt() is not None
        if is_running and self.is_long_over:
            take_for_dead(self._folder)
        elif not is_running and (record is None or record.is_over or self.over_at is not None):
            self.problem = record.problem if record is not None else ""
            self._pool.forget(self)
            self._is_over = True
        return self._is_over


def _asked_by(submission: SubmittedExperiment, *, has_gpus: bool) -> JobRequest:
    resources = submission.config.resources
    num_nodes = resources.jobs.nodes
    num_slots = resources.slots_per_trial or num_nodes  # a trial without slots takes a CPU of each node
    return JobRequest(num_nodes, num_slots, has_gpus, resources.jobs.options, is_requeued=False)


def loss_of(job_id: int, state: JobState) -> tuple[AttemptOutcome, str]:
    """Returns the outcome of an attempt that has recorded no end, from the end of its job. Pure."""
    outcomes: Mapping[str, AttemptOutcome] = {"CANCELLED": "canceled", "PREEMPTED": "lost", "gone": "lost"}
    words = {
        "CANCELLED": "was canceled with scancel",
        "NODE_FAIL": "has lost a node",
        "OUT_OF_MEMORY": "has taken more memory than it had asked for",
        "PREEMPTED": "was preempted",
        "gone": "is gone from Slurm",
    }
    told = words.get(state.name, f"has ended as {state.name}")
    return outcomes.get(state.name, "failed"), f"its job {job_id} {told}"


def newest_supervised(folder: TrialFolder) -> int:
    """Returns the newest attempt that a job has claimed; 0 if there is none."""
    return max((each for each in folder.attempts() if folder.supervised_path(each).exists()), default=0)


def end_job(folder: TrialFolder, job_id: int) -> None:
    """Cancels a job, and records that it was not somebody else."""
    if job_id:
        with contextlib.suppress(OSError):
            note_end(folder, job_id)
        _in_thread(lambda: commands.cancel(job_id))


def _in_thread(ask: Callable[[], None]) -> None:
    def do() -> None:
        try:
            ask()
        except SlurmError as error:
            logger.warning("%s", error)

    threading.Thread(target=do, name="core-sdk-scancel", daemon=True).start()
