"""Follows the jobs of trials that no master runs: from one job to the next, and to the trial's end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.submission import note_end, settle
from core_sdk._execution.slurm.watching import ASK_S, WatchedJob, ask
from core_sdk._ground.records import SlurmRecord
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import AttemptError, SlurmError


class JobFollower:
    """Follows the jobs of one trial. Only `look` says something, by `say`."""

    def __init__(self, folder: TrialFolder, job_id: str, say: Callable[[str], None]) -> None:
        self.job = WatchedJob(folder, job_id)
        self._say = say
        self._asked_at = -ASK_S
        self._num_stops = 0

    def look(self) -> bool:
        """Asks Slurm if it is time, and returns whether the trial goes on: in this job, or in one that follows."""
        record = self.job.folder.read_slurm_job()
        if record is None or record.is_over:
            return False
        if record.job_id != self.job.job_id:
            self.job, self._asked_at = WatchedJob(self.job.folder, record.job_id), -ASK_S
        if time.monotonic() - self._asked_at >= ASK_S:
            self._asked_at = time.monotonic()
            try:
                told = ask([self.job])
            except SlurmError as error:
                told = [str(error)]
            for words in told:
                self._say(words)
        if not self.job.is_long_over:
            return True
        self._say(settle_end(self.job))
        return False

    def stop(self, name: str) -> None:
        """Cancels a job that waits. Asks a training that runs to stop, and cancels its job the second time."""
        folder, job_id = self.job.folder, self.job.job_id
        attempt = folder.running_attempt()
        self._num_stops += 1
        if attempt is not None and self._num_stops == 1:
            folder.request_stop(attempt, f"{name} to core-sdk run")
            self._say(f"{name}: waiting for trial {folder.trial_id} to save and stop; once more cancels the job")
            return
        commands.cancel([job_id])
        if attempt is None:
            settle(folder, "CANCELED", f"{name} while job {job_id} was waiting")
            note_end(folder, job_id)


def settle_end(job: WatchedJob) -> str:
    """Records the end of a job that has recorded none itself, and returns it in words."""
    words = job.end
    if job.state is not None and job.state.name == "CANCELLED":
        settle(job.folder, "CANCELED", words)
    elif not job.folder.attempts():
        settle(job.folder, "PAUSED", words)
    note_end(job.folder, job.job_id)
    return words


def waiting_jobs(folders: Iterable[TrialFolder]) -> list[WatchedJob]:
    """Returns the jobs of these trials that wait, like `live_jobs`."""
    return [job for job in live_jobs(folders) if job.state is not None and job.state.is_waiting]


def live_jobs(folders: Iterable[TrialFolder]) -> list[WatchedJob]:
    """Returns the jobs of these trials that wait or run, with their states.

    A job that was canceled while it waited could not record that: this does. Raises `SlurmError`.
    """
    records = [(folder, folder.read_slurm_job()) for folder in folders]
    jobs = [
        WatchedJob(folder, record.job_id) for folder, record in records if record is not None and not record.is_over
    ]
    ask(jobs)
    for job in jobs:
        if job.over_at is not None and job.folder.running_attempt() is None:
            settle_end(job)
    return [job for job in jobs if job.over_at is None]


def withdraw(folder: TrialFolder, by: str) -> str | None:
    """Takes the trial's job out of Slurm's queue, and records that the trial is paused by `by`.

    Returns the job's id, or None if no job of the trial waits or runs. Raises `SlurmError`, or `AttemptError` if the
    job is just starting or ending.
    """
    for job in live_jobs([folder]):
        if job.state is None or not job.state.is_waiting:
            advice = "It is just starting or ending: try again in a moment"
            raise AttemptError.in_slurm(folder.trial_id, "pause", job.job_id, advice)
        note_end(folder, job.job_id)  # a job that starts just now must not take this for somebody's scancel
        try:
            commands.cancel([job.job_id])
        except SlurmError:
            folder.write_slurm_job(SlurmRecord(job_id=job.job_id))
            raise
        settle(folder, "PAUSED", by)
        return job.job_id
    return None


def check_no_job(folders: Iterable[TrialFolder], action: str, advice: str, *, is_forced: bool) -> None:
    """Raises `AttemptError` if a job of one of these trials waits or runs: it would go on with what is not there.

    Where Slurm cannot be asked, a job that has not recorded its end counts as alive, unless `is_forced`.
    """
    recorded = {folder: job for folder in folders if (job := folder.read_slurm_job()) is not None and not job.is_over}
    if not recorded:
        return
    try:
        alive = [(job.folder, job.job_id) for job in live_jobs(recorded)]
    except SlurmError as error:
        alive = [] if is_forced else [(folder, job.job_id) for folder, job in recorded.items()]
        advice = f"{error} `--force` takes the job for dead"
    for folder, job_id in alive:
        raise AttemptError.in_slurm(folder.trial_id, action, job_id, advice.format(folder.trial_id))
