"""A scheduler that starts a job anew goes on with its trial; the scheduler here is a shell that sets its variables."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from core_sdk.alive import AliveLock
from core_sdk.client import Tracker
from core_sdk.core._jobs import leave_word_of_job, trial_of_job
from core_sdk.errors import PredecessorRunningError
from core_sdk.placement import Job, scheduled_job
from core_sdk.tracking import Home

Start = Callable[..., str]

# Trains 10 steps from where it is told to, stores every fourth, and is killed at step 6 of its trial's first attempt.
SCRIPT = """
import os, signal, subprocess, sys
from core_sdk import core

with core.init() as context:
    latest = context.info.latest_checkpoint
    step = 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as path:
            step = int((path / "step").read_text())
    print(context.info.trial.trial_id, context.info.trial._trial_run_id, step, sep=".", flush=True)
    while step < 10:
        step += 1
        context.train.report_training_metrics(step, {"loss": 0.5})
        if step % 4 == 0:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "step").write_text(str(step))
        if step == 6 and context.info.trial._trial_run_id == 1:
            os.kill(os.getpid(), signal.SIGKILL)
"""
BATCH = {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "tests"}
REQUEUED = BATCH | {"SLURM_RESTART_COUNT": "1"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
FIRST_JOB = Job("slurm/tests/17/0", 0)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Runs a script to its end with some variables; gives what it printed."""

    def run(*arguments: str, source: str = SCRIPT, name: str = "train.py", **variables: str) -> str:
        (tmp_path / name).write_text(textwrap.dedent(source))
        settings = [f"{variable}={value}" for variable, value in variables.items()]
        argv = ["env", *settings, sys.executable, name, *arguments]
        finished = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        return finished.stdout

    return run


@pytest.mark.parametrize("place", [{}, STEP], ids=["batch script", "step"])
def test_a_requeued_job_goes_on_with_its_trial(start: Start, place: dict[str, str]) -> None:
    """As the next attempt of the one trial, whose points stand once."""
    outputs = [start(**BATCH, **place), start(**REQUEUED, **place)]

    trial = Tracker().get_trial(1)
    assert outputs == ["1.1.0\n", "1.2.4\n"]
    assert (trial.state.value, trial.num_attempts, trial.steps_completed) == ("COMPLETED", 2, 10)
    assert [report.steps_completed for report in trial.iter_metrics()] == list(range(1, 11))


def test_a_start_that_came_to_nothing_is_passed_over(start: Start) -> None:
    """A job that died before its script began has changed nothing."""
    start(**BATCH)

    assert start(**BATCH, SLURM_RESTART_COUNT="2") == "1.2.4\n"


def test_each_start_of_a_named_job_goes_on(start: Start) -> None:
    """Where no scheduler counts: a pod that is replaced, say."""
    assert [start(CORE_SDK_JOB_ID="a/b"), start(CORE_SDK_JOB_ID="a/b")] == ["1.1.0\n", "1.2.4\n"]
    assert start(CORE_SDK_JOB_ID="another") == "2.1.0\n"


@pytest.mark.parametrize(
    "variables",
    [{}, BATCH, REQUEUED | {"SLURM_JOB_ID": "18"}, REQUEUED | STEP, REQUEUED | {"CORE_SDK_JOB_ID": ""}],
    ids=["no job", "not requeued", "another job", "another step", "named as none"],
)
def test_what_is_another_training_begins_its_own_trial(start: Start, variables: dict[str, str]) -> None:
    """However much it resembles the first."""
    start(**BATCH)

    assert start(**variables) == "2.1.0\n"


def test_trainings_of_one_batch_script_are_told_apart(start: Start) -> None:
    """By their commands, in whatever order they are started."""
    begun = [start("--lr=1", **BATCH), start("--lr=2", **BATCH)]

    resumed = [start("--lr=2", **REQUEUED), start("--lr=1", **REQUEUED)]

    assert begun == ["1.1.0\n", "2.1.0\n"]
    assert resumed == ["2.2.4\n", "1.2.4\n"]


def test_trainings_that_cannot_be_told_apart_begin_anew(start: Start) -> None:
    """To go on with another's checkpoint would be worse."""
    start(**BATCH)
    start(**BATCH)

    assert start(**REQUEUED) == "3.1.0\n"


def test_another_script_of_the_same_step_begins_anew(start: Start) -> None:
    """A batch script that does other things after a requeue counts its steps otherwise."""
    start(**BATCH, **STEP)

    assert start(name="other.py", **REQUEUED, **STEP) == "2.1.0\n"


def test_processes_that_a_training_starts_leave_its_job_alone(start: Start) -> None:
    """Their trials are their own, and the job still goes on with the first."""
    child = f"subprocess.run([sys.executable, '-c', {textwrap.dedent(SCRIPT)!r}])"
    source = SCRIPT.replace("    while step < 10:", f"    {child}\n    while step < 10:")

    assert start(source=source, CORE_SDK_JOB_ID="a") == "1.1.0\n2.1.0\n"
    assert start(source=source, CORE_SDK_JOB_ID="a").startswith("1.2.4\n")


def test_a_deleted_trial_is_not_gone_on_with(start: Start) -> None:
    """The job begins a new one."""
    start(**BATCH)
    Tracker().get_trial(1).delete()

    assert start(**REQUEUED) == "2.1.0\n"


def test_a_predecessors_end_is_waited_for(start: Start, home: Home) -> None:
    """Where a file server keeps a dead host's lock for a while, or a process takes its time to die."""
    start(CORE_SDK_JOB_ID="a")
    folder = home.trial(1)
    lock = AliveLock(folder.alive_path(1))

    with pytest.raises(PredecessorRunningError, match="job/a goes on with trial 1, whose attempt 1 has not ended"):
        _begun_by(home, Job("job/a", None))

    lock.release()
    assert _begun_by(home, Job("job/a", None)) == 1


def test_a_lock_that_a_dead_host_left_does_not_hold_a_requeue_up(start: Start, home: Home) -> None:
    """The scheduler knows that the job's last start is over; what it might still write is superseded."""
    start(**BATCH, **STEP)
    lock = AliveLock(home.trial(1).alive_path(1))

    assert _begun_by(home, Job(FIRST_JOB.name, 1)) == 1
    lock.release()


def test_words_of_jobs_are_private_and_not_in_the_way(start: Start, home: Home) -> None:
    """No trial, no experiment: nothing lists them."""
    start(**BATCH)

    (word,) = home.jobs.iterdir()
    assert word.stat().st_mode & 0o777 == 0o600
    assert (home.trial_ids(), len(Tracker().list_experiments())) == ([1], 1)


def test_a_word_that_cannot_be_left_costs_no_training(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """It is warned of."""
    Home.create(home.root)
    home.jobs.write_text("in the way")

    leave_word_of_job(home.create_trial(), FIRST_JOB)

    assert "that begins a new trial" in caplog.text


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, None),
        (BATCH | STEP, FIRST_JOB),
        (REQUEUED | STEP, Job("slurm/tests/17/0", 1)),
        (BATCH | STEP | {"SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "3"}, Job("slurm/tests/16_3/0", 0)),
        (REQUEUED | {"CORE_SDK_JOB_ID": "mine"}, Job("job/mine", None)),
    ],
)
def test_jobs_are_named_alike_after_a_requeue(variables: dict[str, str], job: Job | None) -> None:
    """By what Slurm keeps: the cluster, the job or the task of its array, the step."""
    assert scheduled_job(variables, ["train.py"]) == job


def _begun_by(home: Home, job: Job) -> int | None:
    """As the script that has left the word would ask."""
    record = home.read_job(job.name)
    assert record is not None
    return trial_of_job(home, job, record.script, lease_s=0.2)
