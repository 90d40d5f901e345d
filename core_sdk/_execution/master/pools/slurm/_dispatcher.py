"""Submits, watches and ends the jobs of experiments. All calls of Slurm's commands happen in two threads of it."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from queue import Empty, SimpleQueue

from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master.pools.slurm._jobs import JobClaim, PoolJob, note_own_end
from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.order import AttemptKey, key_of, ordered_trials, read_order, write_order
from core_sdk._execution.slurm.script import ARRAY_SIZE, JobRequest, arrays_of, experiment_script
from core_sdk._execution.slurm.submission import on_gpus, place_of, script_path
from core_sdk._execution.slurm.watching import ASK_S, SOON_S, ask
from core_sdk._ground.records import SlurmRecord
from core_sdk._home.folders import Home, TrialFolder
from core_sdk.errors import CoreSDKError, SlurmError

logger = logging.getLogger("core_sdk.master")

_LOOK_S = 1.0
# How long the trials of an experiment are gathered into one array: before the first one, and after each.
_FIRST_S = 0.05
_GATHER_S = 15.0
# Jobs of an earlier master that nobody has asked for after this time are canceled.
_FORGOTTEN_S = 20.0
# How long the last commands may take at the end.
_LAST_S = 10.0
# Each step of the home's order of experiments puts jobs so far back.
_NICE = 100
# Slurm's refusals that end by themselves: the controller is away, or there are too many jobs.
_PASSING = re.compile(r"contact|timed out|temporarily|answered|zero bytes|submit|policy", re.IGNORECASE)


class Dispatcher:
    """The jobs of the master's experiments. It works from construction to `close`. Its methods do not block."""

    def __init__(self, home: Home, tell: Callable[[], None]) -> None:
        """`tell` is called, in any thread, when a claim is complete, or an attempt has ended."""
        self.problem = ""
        """The reason for which Slurm takes no jobs just now; else empty."""
        self._home = home
        self._tell = tell
        self._requests: dict[int, JobRequest] = {}
        self._nices: dict[int, int] = {}
        self._array_size: int | None = None
        """None until Slurm was asked."""
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._changing = threading.Lock()
        self._watched: set[PoolJob] = set()
        self._unsubmitted: list[JobClaim] = []
        self._ending: list[str] = []
        self._submitted_at: dict[int, float] = {}
        self._left: dict[AttemptKey, tuple[TrialFolder, str]] | None = None
        """Jobs of an earlier master, by the attempts that they would begin; None until Slurm was asked."""
        self._is_closed = threading.Event()
        self._forgotten_at = time.monotonic() + _FORGOTTEN_S
        self._speaker = threading.Thread(target=self._speak, name="core-sdk-sbatch", daemon=True)
        self._speaker.start()
        threading.Thread(target=self._follow, name="core-sdk-slurm", daemon=True).start()

    def tell_slurm(self, command: Callable[[], None]) -> None:
        """Carries out this command in the thread that speaks with Slurm, after those that were given before."""
        self._commands.put(command)

    def submit(self, claim: JobClaim) -> None:
        """Submits a job for the claim, together with others of its experiment."""
        with self._changing:
            self._unsubmitted.append(claim)
        self.tell_slurm(_nothing)

    def end(self, job: PoolJob) -> None:
        """Cancels a job, and records that it was not somebody else."""
        if job.job_id:
            note_own_end(job)
            with self._changing:
                self._ending.append(job.job_id)
            self.tell_slurm(_nothing)

    def watch(self, job: PoolJob) -> None:
        with self._changing:
            self._watched.add(job)

    def forget(self, job: PoolJob) -> None:
        with self._changing:
            self._watched.discard(job)

    def renice(self, levels: Mapping[int, int]) -> None:
        """Puts the waiting jobs of experiments into the home's order: a level of 0 comes first."""
        before, self._nices = self._nices, {each: _NICE * level for each, level in levels.items()}
        moved = {each for each, nice in self._nices.items() if nice != before.get(each, 0)}
        with self._changing:
            waiting = [job for job in self._watched if isinstance(job, JobClaim) and job.order.experiment_id in moved]
        for experiment_id, jobs in _by_experiment(waiting):
            job_ids, nice = [job.job_id for job in jobs], self._nices[experiment_id]

            def command(job_ids: Sequence[str] = job_ids, nice: int = nice) -> None:
                commands.renice(job_ids, nice)

            self.tell_slurm(command)

    def close(self) -> None:
        """Carries out what is left to be told, and leaves the jobs to the next master."""
        self._is_closed.set()
        self.tell_slurm(_nothing)
        self._speaker.join(_LAST_S)

    # Speaking

    def _speak(self) -> None:
        while not self._is_closed.is_set():
            with contextlib.suppress(Empty):
                self._try(self._commands.get(timeout=_LOOK_S if self._unsubmitted or self._ending else _FORGOTTEN_S))
                while True:
                    self._try(self._commands.get_nowait())
            self._cancel()
            self._submit()
            if time.monotonic() > self._forgotten_at:
                self._try(self._end_left)
            self._tell()

    @staticmethod
    def _try(command: Callable[[], None]) -> None:
        try:
            command()
        except SlurmError as error:
            logger.warning("%s", error)

    def _cancel(self) -> None:
        with self._changing:
            ending, self._ending = self._ending, []
        if ending:
            try:
                commands.cancel(ending)
            except SlurmError as error:
                logger.warning("%s", error)
                if is_passing(error):
                    with self._changing:
                        self._ending += ending

    def _submit(self) -> None:
        for claims in self._due():
            experiment_id = claims[0].order.experiment_id
            self._submitted_at[experiment_id] = time.monotonic()
            try:
                self.problem = ""
                self._submit_together(claims)
            except (CoreSDKError, OSError) as error:
                if isinstance(error, SlurmError) and is_passing(error):
                    self.problem = str(error)
                    with self._changing:
                        self._unsubmitted += [claim for claim in claims if not claim.job_id]
                else:
                    for claim in claims:
                        claim.fail(str(error))

    def _due(self) -> list[list[JobClaim]]:
        """Takes the claims that can be submitted now, by experiment. Waits a moment for others of the experiment."""
        num_found = -1
        while num_found != (num_found := len(self._unsubmitted)):
            self._is_closed.wait(_FIRST_S)
        now, due = time.monotonic(), []
        with self._changing:
            found, self._unsubmitted = [claim for claim in self._unsubmitted if not claim.is_abandoned], []
            for experiment_id, claims in _by_experiment(found):
                if now - self._submitted_at.get(experiment_id, -_GATHER_S) < _GATHER_S:
                    self._unsubmitted += claims
                else:
                    due.append(claims)
        if not found:
            self.problem = ""
        return due

    def _submit_together(self, claims: Sequence[JobClaim]) -> None:
        """Submits jobs of one experiment as arrays, which are as large as the site allows. Raises `SlurmError`."""
        left = self._left_jobs()
        for claim in claims:
            if (found := left.pop(key_of(claim.order), None)) is not None:
                claim.take(*found)
        new = [claim for claim in claims if not claim.job_id]
        if not new:
            return
        order = new[0].order
        if order.experiment_id not in self._requests:
            self._requests[order.experiment_id] = request_of(order.submission())
        request = self._requests[order.experiment_id]
        text = experiment_script(request, order.experiment_id, place_of(self._home))
        for claim in new:
            write_order(claim.folder, claim.order)
            script_path(claim.folder).write_text(text)
        nice = self._nices.get(order.experiment_id, 0)
        options = [f"--nice={nice}"] if nice and "--nice" not in request.named else []
        if self._array_size is None:
            self._array_size = min(ARRAY_SIZE, commands.max_array_size() or ARRAY_SIZE)
        claims_by_id = {claim.folder.trial_id: claim for claim in new}
        for base, trial_ids in arrays_of(claims_by_id, self._array_size):
            listed = ",".join(str(trial_id - base) for trial_id in trial_ids)
            script = script_path(claims_by_id[trial_ids[0]].folder)
            array_id = commands.submit(script, f"--array={listed}", *options, arguments=[str(base)])
            for trial_id in trial_ids:
                claim, job_id = claims_by_id[trial_id], f"{array_id}_{trial_id - base}"
                claim.folder.write_slurm_job(SlurmRecord(job_id=job_id))
                claim.take(claim.folder, job_id)

    def _left_jobs(self) -> dict[AttemptKey, tuple[TrialFolder, str]]:
        """Returns the jobs of an earlier master that wait, or have not claimed an attempt yet. Raises `SlurmError`."""
        if self._left is None:
            found = {}
            for trial_id in ordered_trials(self._home.root):
                folder = self._home.folder(trial_id)
                with contextlib.suppress(CoreSDKError, OSError):
                    order, record = read_order(folder), folder.read_slurm_job()
                    if order is not None and record is not None and not record.is_over:
                        found[key_of(order)] = folder, record.job_id
            states = commands.states(job_id for _, job_id in found.values()) if found else {}
            self._left = {
                key: (folder, job_id)
                for key, (folder, job_id) in found.items()
                if job_id in states and not states[job_id].is_over
            }
        return self._left

    def _end_left(self) -> None:
        """Cancels jobs of an earlier master that no experiment wants any more."""
        left = self._left_jobs()
        self._forgotten_at = float("inf")
        while left:
            folder, job_id = left.popitem()[1]
            if folder.running_attempt() is None:
                self.end(PoolJob(folder, job_id))

    # Watching

    def _follow(self) -> None:
        asked_at = 0.0
        while not self._is_closed.wait(_LOOK_S):
            with self._changing:
                watched = list(self._watched)
            is_doubtful = any(job.is_doubtful for job in watched)
            if time.monotonic() - asked_at >= (SOON_S if is_doubtful else ASK_S):
                asked_at = time.monotonic()
                self._ask(watched)
            if sum(_look(job) for job in watched):
                self._tell()

    def _ask(self, watched: Sequence[PoolJob]) -> None:
        try:
            told = ask(watched)
        except SlurmError as error:
            told = [str(error)]
        for words in told:
            logger.info("%s", words)


def is_passing(error: SlurmError) -> bool:
    """Returns whether what Slurm refuses may be possible later."""
    return bool(_PASSING.search(error.reason))


def request_of(submission: SubmittedExperiment) -> JobRequest:
    """Returns what the jobs of an experiment ask for. Asks Slurm whether slots are GPUs. Raises `SlurmError`."""
    resources = submission.config.resources
    num_nodes = resources.jobs.nodes
    # A trial without slots takes a CPU of each node.
    request = JobRequest(num_nodes, resources.slots_per_trial or num_nodes, False, resources.jobs.options, False)
    return request if request.problem() or not resources.slots_per_trial else on_gpus(request)


def _by_experiment(claims: Sequence[JobClaim]) -> list[tuple[int, list[JobClaim]]]:
    ordered = sorted(claims, key=lambda claim: claim.order.experiment_id)
    return [(id_, list(each)) for id_, each in groupby(ordered, lambda claim: claim.order.experiment_id)]


def _look(job: PoolJob) -> bool:
    try:
        return job.look()
    except (CoreSDKError, OSError) as error:  # the master finds out that the trial's files are gone
        logger.debug("%s", error)
        return True


def _nothing() -> None:
    """Only wakes the thread that speaks."""
