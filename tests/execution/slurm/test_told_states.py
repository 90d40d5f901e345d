"""What is done to a trial follows from the state of its job, also where Slurm's answers are old or missing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from execution.slurm.told import ToldSlurm
from home.journals import new_trial, record
from interfaces.cli.commands import run_cli

from core_sdk._execution.master.pools.slurm._jobs import JobExecution, PoolJob
from core_sdk._execution.slurm import commands
from core_sdk._execution.slurm.commands import JobState
from core_sdk._execution.slurm.submission import note, submit_again
from core_sdk._execution.slurm.watching import WatchedJob, ask
from core_sdk._execution.steering import experiments, trials
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import Ended, SlurmRecord
from core_sdk._home import Home, open_view
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import AttemptError, SlurmError, TrialNotFoundError, TrialNotRunningError


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToldSlurm:
    place = tmp_path / "bin"
    place.mkdir()
    return ToldSlurm(place, monkeypatch)


@pytest.fixture
def running(home: Home) -> Iterator[TrialFolder]:
    """A trial whose attempt runs in job 7."""
    folder = new_trial(home)
    folder.write_slurm_job(SlurmRecord(job_id="7"))
    folder.run_info_path(1).write_text("{}")
    lock = AliveLock(folder.supervised_path(1))
    yield folder
    lock.release()


class Owner:
    """Takes what an execution asks for."""

    def submit(self, claim: object) -> None: ...

    def watch(self, job: PoolJob) -> None: ...

    def forget(self, job: PoolJob) -> None: ...

    def tell_slurm(self, command: Callable[[], None]) -> None: ...

    def end(self, job: PoolJob) -> None: ...


def test_a_list_without_the_job_is_checked_with_the_controller(told: ToldSlurm) -> None:
    """A list that a site has kept lacks a job that the controller knows, and has a job that it has forgotten."""
    told.tell("7", "RUNNING")
    told.keep_list_empty()

    assert commands.states(["7", "8_1"]) == {"7": JobState("RUNNING", "", "h1")}


def test_a_job_that_lives_is_never_replaced(
    told: ToldSlurm, running: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the attempt writes, a Slurm that does not know its job ends nothing; nor is another job submitted."""
    execution = JobExecution(Owner(), running)
    now = time.monotonic()

    for minute in range(60):
        monkeypatch.setattr(time, "monotonic", lambda minute=minute: now + 60 * minute)
        with running.log_path(1).open("a") as log:
            log.write("a line\n")
        ask([execution])
        assert not execution.look()

    assert running.running_attempt() == 1
    assert execution.loss is None
    with pytest.raises(AttemptError, match="it runs in Slurm, as job 7"):
        submit_again(running, (), is_again=False)
    assert not any(call.startswith(("scancel", "sbatch")) for call in told.calls)


def test_a_lock_of_a_dead_node_does_not_keep_a_trial_for_ever(
    told: ToldSlurm, running: TrialFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that writes nothing for ten minutes, and whose job not even the controller knows, is dead."""
    execution = JobExecution(Owner(), running)
    now = time.monotonic()

    for minute in range(12):
        monkeypatch.setattr(time, "monotonic", lambda minute=minute: now + 60 * minute)
        ask([execution])
        execution.look()
    execution.look()

    assert (execution.is_over, execution.loss) == (True, ("failed", "its job 7 is gone from Slurm"))


def test_a_job_that_slurm_knows_again_is_not_over(told: ToldSlurm, home: Home) -> None:
    """A job that was missing once goes on when Slurm names it again."""
    job = WatchedJob(new_trial(home), "7")

    ask([job])
    was_over = job.over_at is not None
    told.tell("7", "PENDING", "Priority")
    ask([job])

    assert (was_over, job.over_at) == (True, None)


# What Slurm says of jobs that will start, or start again, by themselves or when somebody lets them.
WAITING = [
    ("PENDING", "Priority"),
    ("PENDING", "JobHeldUser"),
    ("PENDING", "BeginTime"),  # after a requeue, or a preemption that requeues
    ("PENDING", "Dependency"),  # after a preemption that cancels, or the end of the time
    ("REQUEUED", ""),
    ("REQUEUE_HOLD", "job requeued in held state"),
    ("CONFIGURING", ""),
]


@pytest.fixture(params=WAITING, ids=str)
def waiting(home: Home, told: ToldSlurm, request: pytest.FixtureRequest) -> TrialFolder:
    """A trial that has trained in a job, and whose next job, 7, waits."""
    folder = new_trial(home)
    record(folder, Ended(time=2.0, outcome="paused", error=None))
    note(folder, "7", newest=1)
    told.tell("7", *request.param)
    return folder


def state(folder: TrialFolder) -> tuple[str, str, str]:
    """Returns the state of the trial and its reason, and the state of its experiment."""
    with open_view(Home(folder.home_root)) as view:
        row = view.trial(folder.trial_id)
        return row.state, row.reason, view.experiment(row.experiment_id).state


def test_a_trial_whose_job_waits_is_queued(waiting: TrialFolder) -> None:
    """It goes on by itself, and so it is not PAUSED."""
    assert state(waiting) == ("QUEUED", "waits in Slurm's queue as job 7", "QUEUED")


@pytest.mark.parametrize("pause", [trials.pause, experiments.pause], ids=["trial", "experiment"])
def test_a_pause_of_a_trial_that_waits_holds(
    waiting: TrialFolder, told: ToldSlurm, pause: Callable[[Home, int, str], object]
) -> None:
    """The job is taken out of the queue, so that only a resume submits another one."""
    pause(Home(waiting.home_root), 1, "somebody")

    assert told.states == {"7": "CANCELLED"}
    assert state(waiting) == ("PAUSED", "somebody", "PAUSED")
    submit_again(waiting, (), is_again=False)
    assert told.states == {"7": "CANCELLED", "8": "PENDING"}
    assert state(waiting)[0] == "QUEUED"


def test_a_pause_that_slurm_refuses_changes_nothing(waiting: TrialFolder, told: ToldSlurm) -> None:
    """Where the job cannot be canceled, the trial stays in the queue, and the error says so."""
    told.refuse("scancel")

    with pytest.raises(SlurmError, match="job 7 not canceled"):
        trials.pause(Home(waiting.home_root), 1, "somebody")

    assert state(waiting)[0] == "QUEUED"
    job = waiting.read_slurm_job()
    assert job is not None and not job.is_over


@pytest.mark.parametrize("delete", [trials.delete, experiments.delete], ids=["trial", "experiment"])
def test_a_trial_whose_job_waits_is_not_deleted(
    waiting: TrialFolder, told: ToldSlurm, delete: Callable[..., object]
) -> None:
    """A job is a reference: it would make the trial's folder anew. A pause takes it away."""
    home = Home(waiting.home_root)
    for is_forced in (False, True):
        with pytest.raises(
            AttemptError, match=r"cannot delete trial 1 here: it runs in Slurm, as job 7\. `core-sdk tr"
        ):
            delete(home, 1, force=is_forced)

    trials.pause(home, 1, "somebody")
    delete(home, 1)

    with pytest.raises(TrialNotFoundError):
        home.trial(1)
    assert told.states == {"7": "CANCELLED"}


def test_where_slurm_cannot_be_asked_only_a_forced_deletion_is_done(waiting: TrialFolder, told: ToldSlurm) -> None:
    """The home may have come from a cluster that is far away."""
    told.refuse("squeue")
    home = Home(waiting.home_root)

    with pytest.raises(AttemptError, match="`--force` takes the job for dead"):
        trials.delete(home, 1)
    trials.delete(home, 1, force=True)

    with pytest.raises(TrialNotFoundError):
        home.trial(1)


def test_a_list_hears_of_each_job_that_was_canceled_while_it_waited(
    home: Home, told: ToldSlurm, tmp_path: Path
) -> None:
    """Its trial is no longer QUEUED, nor is its experiment, although the list shows only newer trials."""
    folder = new_trial(home)
    note(folder, "7", newest=0)
    record(new_trial(home, "other"), Ended(time=2.0, outcome="completed"))
    told.tell("7", "CANCELLED")
    before = state(folder)

    shown = run_cli(tmp_path, "trial", "list", "--limit", "1", "--json", "--fields", "trial_id,state")

    assert json.loads(shown.output) == [{"trial_id": 2, "state": "COMPLETED"}]
    assert (before[0], before[2]) == ("QUEUED", "QUEUED")
    assert (state(folder)[0], state(folder)[2]) == ("CANCELED", "CANCELED")


def test_other_verbs_name_the_job_that_waits(waiting: TrialFolder) -> None:
    """A resume submits no second job, and a kill says what ends the one that waits."""
    with pytest.raises(AttemptError, match=r"it runs in Slurm, as job 7\. `scancel 7` ends it"):
        trials.kill(Home(waiting.home_root), 1, "somebody")
    with pytest.raises(AttemptError, match=r"it runs in Slurm, as job 7\. `scancel 7` ends it"):
        submit_again(waiting, (), is_again=True)


@pytest.mark.parametrize("job", ["CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT", ""])
def test_a_job_that_is_over_keeps_no_trial(home: Home, told: ToldSlurm, job: str) -> None:
    """A job that has ended, or that Slurm has forgotten, and has recorded no end itself, is in nobody's way."""
    folder = new_trial(home)
    record(folder, Ended(time=2.0, outcome="paused", error=None))
    note(folder, "7", newest=1)
    told.tell("7", job)

    with pytest.raises(TrialNotRunningError):
        trials.pause(home, 1, "somebody")
    trials.delete(home, 1)

    with pytest.raises(TrialNotFoundError):
        home.trial(1)


@pytest.mark.parametrize("job", ["RUNNING", "COMPLETING", "SUSPENDED"])
def test_a_job_that_is_just_starting_or_ending_is_told(home: Home, told: ToldSlurm, job: str) -> None:
    """Its trial does not run, and may in a moment: nothing is paused, deleted or submitted."""
    folder = new_trial(home)
    record(folder, Ended(time=2.0, outcome="paused", error=None))
    note(folder, "7", newest=1)
    told.tell("7", job)

    with pytest.raises(AttemptError, match="just starting or ending"):
        trials.pause(home, 1, "somebody")
    with pytest.raises(AttemptError, match="cannot delete trial 1 here"):
        trials.delete(home, 1, force=True)
    with pytest.raises(AttemptError, match="cannot resume trial 1 here"):
        submit_again(folder, (), is_again=False)
    assert told.states == {"7": job}
