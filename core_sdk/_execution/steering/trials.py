"""Steers, describes, labels and deletes trials. Every verb raises `TrialNotFoundError` for an unknown one."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import KillTrial
from core_sdk._execution.steering.checks import check_unchanged, checked_labels, checked_text
from core_sdk._execution.steering.verb import verb
from core_sdk._ground.environment import author
from core_sdk._ground.records import Settled, TrialArchivedSet, TrialDescribed, TrialLabelsChanged, check_name
from core_sdk._home import Home
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.attempts.running import await_end
from core_sdk._home.folders import TrialFolder, with_reserve
from core_sdk._home.journal import find_records
from core_sdk._home.rows import TrialState
from core_sdk._home.states import WAITS_FOR_SLOTS, trial_state
from core_sdk.errors import AttemptError, ExperimentError, RecordDamagedError, TrialNotRunningError, TrialRunningError

VERDICTS = ("keep", "discard", "")


@dataclass(frozen=True)
class Resumed:
    attempt: int
    origin: str
    """Words that say where the attempt goes on."""


@dataclass(frozen=True)
class Paused:
    attempt: int | None
    """The attempt that was asked to stop; None if the trial waited in Slurm's queue."""
    done: str
    """The words that say what was done, after the trial's number."""


@verb("trial", "pause", "trial {trial_id} {answer.done}", is_asked_of_home=True)
def pause(home: Home, trial_id: int, by: str) -> Paused:
    """Asks a running trial to save a checkpoint and stop, and does not wait for it.

    The job of a trial that waits in Slurm's queue is taken out of it. Raises `TrialNotRunningError`, `SlurmError`, or
    `AttemptError` if its job is just starting or ending, and the errors of `check_steered_alone`.
    """
    folder = home.trial(trial_id)
    check_steered_alone(home, trial_id)
    if (attempt := folder.running_attempt()) is not None:
        folder.request_stop(attempt, by)
        return Paused(attempt, "was asked to stop: it does when it next calls should_preempt()")
    if (job := folder.read_slurm_job()) is not None and not job.is_over:
        from core_sdk._execution.slurm.following import withdraw  # what few homes need

        if (job_id := withdraw(folder, by)) is not None:
            return Paused(None, f"is paused: its job {job_id} was taken out of Slurm's queue")
    if _has_left_line(folder, by):
        return Paused(None, "is canceled: it waited for slots")
    raise TrialNotRunningError(trial_id, "pause")


def check_steered_alone(home: Home, trial_id: int) -> None:
    """Raises `ExperimentError` for a trial of a submitted experiment that has not ended."""
    experiment_id = home.trial(trial_id).read_record().experiment_id
    search = home.experiment(experiment_id).read().own_search
    if search is not None and not search.has_ended:
        raise ExperimentError.of(
            experiment_id,
            f"is {search.state}, and decides when its trials run: `core-sdk experiment pause {experiment_id}` lets "
            f"all of them save and stop, `core-sdk experiment activate {experiment_id}` lets them go on, and "
            f"`core-sdk trial kill {trial_id}` ends this one",
        )


@verb("trial", "kill", "killed trial {trial_id}", is_asked_of_home=True)
def kill(home: Home, trial_id: int, by: str) -> TrialState:
    """Kills the trial with all its processes, and returns its state when they are gone.

    It is canceled, unless its script had already recorded how it ended. If a master carries out the trial's experiment,
    the master kills the trial, so that it does not start it again. It also cancels a trial that does not run yet.
    Raises `TrialNotRunningError`, `MasterError`, or `AttemptError` if it runs in Slurm, or no agent on this machine has
    started it.
    """
    from core_sdk._home.attempts import killing  # psutil, which the other verbs do not need

    folder = home.trial(trial_id)
    experiment_id = folder.read_record().experiment_id
    if _is_steered_by_master(home, experiment_id):
        call(home.root, KillTrial(experiment_id=experiment_id, trial_id=trial_id, by=f"killed by {by}"))
        await_end(folder)
        return "CANCELED"
    if _has_left_line(folder, f"killed by {by}"):
        return "CANCELED"
    newest = folder.running_attempt()
    if (attempt := killing.killable_attempt(folder)) is None:
        if (job := folder.read_slurm_job()) is not None and not job.is_over:
            raise AttemptError.in_slurm(trial_id, "kill", job.job_id, f"`scancel {job.job_id}` ends it")
        raise TrialNotRunningError(trial_id, "kill") if newest is None else killing.no_agent(trial_id, newest)
    newest = newest or max(folder.attempts())
    settled = Settled(time=time.time(), state="CANCELED", reason=f"killed by {by}", attempt=newest)
    killing.kill(folder, attempt, settled)
    return trial_state(read_end(folder, None), False, read_settled(folder))[0]


def _has_left_line(folder: TrialFolder, reason: str) -> bool:
    """Cancels a trial of a try that waits for its slots. Returns False if it does not wait, or was just started."""
    settled = None if folder.attempts() else read_settled(folder)
    if settled is None or not settled.reason.startswith(WAITS_FOR_SLOTS):
        return False
    folder.append_change(Settled(time=time.time(), state="CANCELED", reason=reason, attempt=0))
    return not folder.attempts()


def _is_steered_by_master(home: Home, experiment_id: int) -> bool:
    """Returns whether a master carries out the experiment. No master does so while a file of it is damaged."""
    try:
        search = home.experiment(experiment_id).read().own_search
    except RecordDamagedError:
        return False
    return search is not None and not search.has_ended and not search.is_damaged


@verb(
    "trial",
    "resume",
    "resumed trial {trial_id} {answer.origin}, as its attempt {answer.attempt}",
    is_asked_of_home=True,
)
def resume(home: Home, trial_id: int) -> Resumed:
    """Starts the next attempt in the background, from the newest good checkpoint; its output is kept.

    Raises `TrialRunningError`, `TrialCompletedError`, `NothingToResumeError`, `CommandError`, `AttemptError` if it
    runs in Slurm, `SlotError` if it needs slots that others have, and the errors of `check_steered_alone`.
    """
    from core_sdk._execution.agent.background import start_in_background  # processes, which the other verbs do not need
    from core_sdk._execution.agent.starting import Agent
    from core_sdk._home.attempts import starting
    from core_sdk._machine.slots import taken_slots

    folder = home.trial(trial_id)
    check_steered_alone(home, trial_id)
    if (job := folder.read_slurm_job()) is not None:
        advice = f"`core-sdk trial resume {trial_id}` submits its next job, where Slurm's commands are"
        raise AttemptError.in_slurm(trial_id, "resume", job.job_id, advice)
    with taken_slots(folder.read_record().slots_to_take, home.root) as slots:
        start = start_in_background(Agent(), lambda: starting.resume(folder, slots=slots))
    checkpoint = start.continuation and start.continuation.checkpoint
    return Resumed(start.number, f"from step {checkpoint.steps_completed}" if checkpoint else "from its beginning")


@verb("trial", "archive", "archived trial {trial_id}")
def archive(home: Home, trial_id: int) -> None:
    """Hides the trial from lists until a later attempt begins. Raises `TrialRunningError`."""
    folder = home.trial(trial_id)
    if (running := folder.running_attempt()) is not None:
        is_stopping = folder.read_stop_request(running) is not None
        raise TrialRunningError(trial_id, running, "archive", is_stopping=is_stopping)
    folder.append_change(TrialArchivedSet(time=time.time(), attempt=max(folder.attempts(), default=0)))


@verb("trial", "unarchive", "trial {trial_id} is in lists again")
def unarchive(home: Home, trial_id: int) -> None:
    """Shows the trial in lists again."""
    home.trial(trial_id).append_change(TrialArchivedSet(time=time.time(), attempt=None))


@verb("trial", "change", "changed trial {trial_id}")
def describe(
    home: Home,
    trial_id: int,
    *,
    name: str | None = None,
    notes: str | None = None,
    notes_before: str | None = None,
    verdict: str | None = None,
    verdict_reason: str | None = None,
    by: str = "",
) -> None:
    """Changes the name, the notes or the verdict of the trial. What is None is left unchanged.

    `by` is who writes the notes, by default the user of this process. An empty name is the generated one, an empty
    verdict is none. Raises `InvalidNameError`, `TypeError`, `ValueError` for a verdict other than `keep` and `discard`,
    or `TextChangedError` if the notes are no longer `notes_before`.
    """
    folder = home.trial(trial_id)
    if name:
        check_name("the trial's name", name)
    if notes is not None:
        checked_text("the notes", notes)
    if verdict is not None and verdict not in VERDICTS:
        raise ValueError(f"a verdict is keep or discard, and empty to take it back; {verdict!r} is none")
    if verdict_reason is not None:
        checked_text("the reason", verdict_reason)
    change = TrialDescribed(
        time=time.time(),
        name=name,
        notes=notes,
        notes_author=None if notes is None else by or author(),
        verdict=verdict,
        verdict_reason=verdict_reason,
    )
    folder.append_change(change, lambda: check_unchanged("the notes", _notes(folder), notes_before))


def _notes(folder: TrialFolder) -> str:
    """Returns the trial's notes: those that it began with, or the last ones that somebody has written."""
    changes = find_records(folder.changes_path, ('"trial_described"',))
    written = [one.notes for one in changes if isinstance(one, TrialDescribed) and one.notes is not None]
    return written[-1] if written else folder.read_record().notes


@verb("trial", "label", "changed the labels of trial {trial_id}", is_told_home=True)
def label(home: Home, trial_id: int, *, add: Collection[str] = (), remove: Collection[str] = ()) -> None:
    """Gives the trial labels, and takes others away. Raises `InvalidNameError` or `TypeError`."""
    folder = home.trial(trial_id)
    change = TrialLabelsChanged(time=time.time(), added=checked_labels(add), removed=checked_labels(remove))
    folder.append_change(change)


@verb("trial", "delete", "deleted trial {trial_id}")
def delete(home: Home, trial_id: int, *, force: bool = False) -> None:
    """Deletes the trial with its records and checkpoints.

    Raises `TrialRunningError`, or `AttemptError` if a job of it waits or runs in Slurm, or if a writer still reports
    about it. Raises `CheckpointProtectedError` if a checkpoint is pinned, if another trial began with it, if a running
    trial uses it, or if it is a version of a model; `force` overrides a writer and the first two.
    """
    from core_sdk._home.deletion import delete_trial  # storages, which the other verbs do not need

    folder = home.trial(trial_id)
    check_no_job([folder], is_forced=force)
    with_reserve(home.root, lambda: delete_trial(folder, is_forced=force))


def check_no_job(folders: Collection[TrialFolder], *, is_forced: bool) -> None:
    """Raises `AttemptError` if a job of one of these trials waits or runs in Slurm."""
    from core_sdk._execution.slurm import following  # what few homes need

    following.check_no_job(
        folders,
        "delete",
        "`core-sdk trial pause {0}` takes a job that waits out of the queue, and `scancel` ends one",
        is_forced=is_forced,
    )
