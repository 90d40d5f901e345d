"""A job of Slurm, as its process on the first node sees it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from core_sdk._execution.agent.starting import Agent
from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.fate import Fate, fate_of, follows
from core_sdk._execution.slurm.script import step_command
from core_sdk._execution.slurm.submission import note_end, settle, submit_next, versions
from core_sdk._ground.environment import Environment, batch_job, visible_gpus
from core_sdk._ground.placement import SlurmJob
from core_sdk._home.attempts.continuation import describe_end, newest_good_checkpoint
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.attempts.killing import kill, killable_attempt
from core_sdk._home.attempts.running import await_end, take_for_dead
from core_sdk._home.attempts.starting import AttemptStart, resume
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.spool.node import sees_home
from core_sdk._home.states import TRY_AGAIN, WAITS_IN_SLURM, trial_state
from core_sdk._machine.processes import STOPS, CaughtSignals
from core_sdk._machine.slots import Slots
from core_sdk.errors import CoreSDKError, SlurmError

# The time for which the submitter of the job, or an earlier job of the trial, may keep its lock.
_LAST_MOMENT_S = 30.0
# Clocks that are nearer to each other than this are as good as equal.
_NEAR_S = 10.0
_FAILURE = 1


class TrialJob:
    """A job that runs one attempt of a trial."""

    def __init__(
        self,
        folder: TrialFolder,
        job: SlurmJob,
        caught: CaughtSignals,
        claim: Callable[[Slots], AttemptStart],
        *,
        num_slots: int | None,
        is_chained: bool,
        agent: Agent,
    ) -> None:
        """`claim` claims the attempt. With `is_chained`, the job submits the one that goes on with the trial."""
        self._claim = claim
        self._agent = agent
        self._num_slots = num_slots
        self._is_chained = is_chained
        self._folder = folder
        self._job = job
        self._caught = caught
        self._fate: Fate | None = None
        """The way in which Slurm ends the job; None as long as it has not asked for the end."""
        self._planned_end = ""

    def run(self) -> int:
        """Runs the attempt to its end, submits the next job if one has to follow, and returns the exit status."""
        try:
            return self._run()
        except CoreSDKError as error:
            note_end(self._folder, self._job.job_id, str(error))
            if self._is_chained and self._folder.running_attempt() is None:
                settle(self._folder, "PAUSED", f"job {self._job.job_id} could not start it: {error}")
            raise

    def _run(self) -> int:
        if not await_end(self._folder, _LAST_MOMENT_S) and self._job.num_restarts:
            take_for_dead(self._folder)  # Slurm has ended the job's last start, with all its processes
        if self._job.num_restarts and read_end(self._folder, None).outcome == "completed":
            note_end(self._folder, self._job.job_id)  # it was requeued at its end
            return 0
        shown = ThreadPoolExecutor(1).submit(self._show)
        start = self._begin()
        self._planned_end = shown.result().get("EndTime", "")
        for skipped in start.continuation.skipped if start.continuation else ():
            _say(f"skipped checkpoint {skipped.storage_id}: {skipped.reason}")
        self._agent.start(start)
        threading.Thread(target=self._heed_signals, args=[start.number], daemon=True).start()
        code = self._agent.wait().code
        if code is None and (left := killable_attempt(self._folder)) is not None:
            kill(self._folder, left)  # somebody has killed the agent
        return self._end(start, code)

    def _begin(self) -> AttemptStart:
        """Claims the trial's next attempt, which goes on from the newest good checkpoint."""
        nodes, gpus = self._job.nodes, visible_gpus() or []
        here = self._num_slots // len(nodes) if self._num_slots else len(gpus)
        start = self._claim(Slots(tuple(range(here)), tuple(gpus)))
        if len(nodes) == 1 or start.command is None:
            return start
        counts = [here or 1] * len(nodes)
        info = msgspec.structs.replace(start.info, container_addrs=list(nodes), container_slot_counts=counts)
        self._folder.write_run_info(start.number, info)
        command = msgspec.structs.replace(start.command, argv=step_command(len(nodes), start.command.argv))
        # Slurm tells the processes of each node their own GPUs.
        variables = {name: value for name, value in start.variables.items() if name != "CUDA_VISIBLE_DEVICES"}
        return dataclasses.replace(start, info=info, command=command, variables=variables)

    def _heed_signals(self, attempt: int) -> None:
        """Asks the training to stop when Slurm asks for the end."""
        while True:
            match self._caught.wait(None):
                case signal.SIGUSR1:
                    self._fate = "limit"
                    self._planned_end = self._show().get("EndTime", self._planned_end)
                    reason = f"the time of Slurm's job {self._job.job_id} is nearly over"
                case signal.SIGUSR2:  # the trial was asked to stop before its script could hear it
                    self._agent.signal(signal.SIGTERM)
                    continue
                case number if number in STOPS:
                    shown = self._show()
                    self._fate = fate_of(shown, num_restarts=self._job.num_restarts, planned_end=self._planned_end)
                    reason = f"Slurm's job {self._job.job_id} {_WORDS[self._fate]}"
                case _:
                    continue
            _say(reason)
            with contextlib.suppress(OSError):
                self._folder.request_stop(max(self._folder.attempts()), reason)
            if not self._folder.journal_path(attempt).exists():  # the script has not called `init()`
                self._agent.signal(signal.SIGTERM)

    def _end(self, start: AttemptStart, code: int | None) -> int:
        """Records what follows, and returns the exit status of the job."""
        folder, job_id = self._folder, self._job.job_id
        state, reason = trial_state(read_end(folder, code), False, read_settled(folder))
        fate, is_complete = self._fate, state == "COMPLETED"
        before = start.continuation.storage_id if start.continuation else None
        has_progressed = fate == "limit" and newest_good_checkpoint(folder).storage_id != before
        problem = ""
        if fate == "limit" and not is_complete and not has_progressed:
            problem = f"it has stored no checkpoint within the time of job {job_id}: give it more time"
        if fate == "canceled" and not is_complete and not self._is_ended_by_us():
            settle(folder, "CANCELED", f"Slurm's job {job_id} {_WORDS[fate]}")
        elif not self._is_chained:
            pass  # the master decides what follows
        elif follows(fate, is_complete=is_complete, has_progressed=has_progressed):
            try:
                _say(f"job {submit_next(folder, job_id)} goes on with trial {folder.trial_id}")
                return TRY_AGAIN
            except SlurmError as error:
                settle(folder, "PAUSED", f"its next job could not be submitted: {error}")
        elif fate == "requeued" and not is_complete:
            settle(folder, "PAUSED", f"{WAITS_IN_SLURM} as job {job_id}, which was requeued")
            return TRY_AGAIN
        elif problem:
            settle(folder, "PAUSED", problem)
        note_end(folder, job_id, problem)
        _say(f"trial {folder.trial_id} {describe_end(folder, state, reason)}")
        return 0 if is_complete else TRY_AGAIN if state == "PAUSED" else code or _FAILURE

    def _is_ended_by_us(self) -> bool:
        """Returns whether a master or `trial pause` has ended the job, and has recorded that before."""
        record = self._folder.read_slurm_job()
        return record is not None and record.is_over

    def _show(self) -> dict[str, str]:
        try:
            return dict(commands.details(self._job.job_id))
        except SlurmError as error:
            _say(str(error))
            return {}


_WORDS = {
    "limit": "has reached its time limit",
    "preempted": "was preempted",
    "requeued": "was requeued",
    "canceled": "was canceled with scancel, and not by Core SDK",
    "asked": "was sent SIGTERM",
}


def run_job(agent: Agent) -> int:
    """Runs the job of this process, by its arguments, with this agent. Returns the exit status."""
    try:
        return _job_of_arguments(agent).run()
    except (CoreSDKError, OSError) as error:
        _say(str(error))
        return _FAILURE


def _job_of_arguments(agent: Agent) -> TrialJob:
    """Returns the job of this process. Raises `SlurmError` if there is none, or if it cannot run here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trial", type=int, required=True)
    parser.add_argument("--home", required=True)
    parser.add_argument("--versions", default=versions())
    parser.add_argument("--in-experiment", action="store_true")
    options = parser.parse_args()
    caught = CaughtSignals()
    folder = Home(Environment.read().home).folder(options.trial)
    job = batch_job()
    if job is None:
        raise SlurmError("this is the process of a job", "there is none", "Submit the batch script with `sbatch`")
    _check_node(folder, options.home, options.versions)
    if words := clock_words(_ahead_s(folder)):
        _say(words)
    if options.in_experiment:
        from core_sdk._execution.slurm.order import ordered_attempt  # no other job has to import experiments

        order = ordered_attempt(folder, job.job_id)
        return TrialJob(folder, job, caught, order.claim, num_slots=order.num_slots, is_chained=False, agent=agent)
    num_slots = folder.read_record().num_slots
    again = partial(_resume, folder)
    return TrialJob(folder, job, caught, again, num_slots=num_slots, is_chained=True, agent=agent)


def _check_node(folder: TrialFolder, identity: str, wanted: str) -> None:
    """Raises `SlurmError` if this node does not see the trial, or has other versions than are wanted."""
    if not sees_home(folder.home_root, identity) or not folder.path.is_dir():
        raise SlurmError(
            f"{os.uname().nodename} cannot run the job",
            f"it does not see trial {folder.trial_id} of the home {folder.home_root}",
            "CORE_SDK_HOME must lie on a file system that all nodes share, at the same path",
        )
    if wanted != versions():
        raise SlurmError(
            f"{os.uname().nodename} cannot run the job",
            f"it has other versions of Python and torch, {versions()}, than where the trial was submitted, {wanted}",
            "Give all nodes the same environment",
        )


def _resume(folder: TrialFolder, slots: Slots) -> AttemptStart:
    return resume(folder, is_again=True, slots=slots)


def clock_words(ahead_s: float) -> str:
    """Returns in words how far this node's clock is ahead of the file server's; empty if it is near. Pure."""
    if abs(ahead_s) < _NEAR_S:
        return ""
    off = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"
    return (
        f"the clock of {os.uname().nodename} is {off} the clock of the home's file server. The times of what it "
        "records are wrong by so much; their order is not"
    )


def _ahead_s(folder: TrialFolder) -> float:
    with tempfile.TemporaryFile(dir=folder.path) as probe:
        probe.write(b"?")
        probe.flush()
        os.fsync(probe)
        return time.time() - os.fstat(probe.fileno()).st_mtime


def _say(words: str) -> None:
    print(f"core-sdk: {words}", flush=True)
