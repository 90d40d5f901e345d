"""Trainings under a real Slurm: placed by srun, stopped by its signals, and gone on with after a requeue."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from execution.slurm.cluster import Cluster, slurm_cluster
from execution.slurm.trainings import finish, has_stored, read_trial
from parts import needs

from core_sdk._home import Home

pytestmark = needs("hosts", "slurm")

_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
_LAUNCH = f"{sys.executable} -m launch.torch_distributed train.py ranks"
_ON_EACH_NODE = f"exec srun --ntasks-per-node=1 {_LAUNCH}"
_ALONE = f"exec {sys.executable} -u train.py alone"
PAUSED = "75:0"
_DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "schedulers.md"


def output(place: Path, job_id: int) -> str:
    return (place / f"{job_id}.out").read_text()


def test_srun_needs_no_flag_and_usr1_is_a_stop(slurm: Cluster, home: Home, place: Path) -> None:
    """Under srun, two nodes train as one trial without options, and save and exit with 75 on SIGUSR1."""
    job_id = slurm.submit(_ON_EACH_NODE, "-N2", cwd=place)
    slurm.wait_for(lambda: has_stored(home))

    slurm.run(["scancel", "--signal=USR1", str(job_id)])

    assert slurm.await_state(job_id, *_ENDED)["ExitCode"] == PAUSED
    lines = output(place, job_id).splitlines()
    trial = read_trial(home)
    assert {line for line in lines if "told" in line} == {
        "[rank=0] told ['h1', 'h2'] 0 [1, 1]",
        "[rank=1] told ['h1', 'h2'] 1 [1, 1]",
    }
    assert {line for line in lines if "began" in line} == {"[rank=0] began 0 of 2 at 0", "[rank=1] began 1 of 2 at 0"}
    assert {f"[rank={rank}] stopped {rank} at {trial.steps[-1]}" for rank in range(2)} <= set(lines)
    assert trial.checkpoints[-1] == trial.steps[-1]
    assert (trial.outcome, home.trial_ids()) == ("paused", [1])


def test_a_requeue_goes_on_with_the_same_trial(slurm: Cluster, home: Home, place: Path) -> None:
    """A plain script in a batch job: killed by `scontrol requeue`, started again from its newest checkpoint."""
    job_id = slurm.submit(_ALONE, "-N1", "--requeue", cwd=place)
    slurm.wait_for(lambda: has_stored(home))

    slurm.run(["scontrol", "requeue", str(job_id)])

    slurm.wait_for(lambda: has_stored(home, num_attempts=2), timeout_s=120)
    finish(place)
    assert slurm.await_state(job_id, *_ENDED)["JobState"] == "COMPLETED"
    trial = read_trial(home)
    assert trial.starts[1].resumed_steps in trial.checkpoints
    assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
    assert (len(trial.starts), trial.outcome, home.trial_ids()) == (2, "completed", [1])


def submit_chain(slurm: Cluster, home: Home, place: Path, changes: Mapping[str, str] = {}) -> int:
    """Submits the first script of docs/schedulers.md, for this cluster; returns the first job's id."""
    script = re.findall(r"```sh\n(#!/bin/bash.*?)```", _DOCUMENT.read_text(), re.DOTALL)[0]
    options = "--nodes=1 --ntasks-per-node=1 --time=20"
    for shown, here in {
        "--nodes=4 --ntasks-per-node=1 --gpus-per-node=8 --time=04:00:00": options,
        "/shared/core-sdk": str(home.root),
        "python -m launch.torch_distributed train.py": _LAUNCH,
        **changes,
    }.items():
        assert shown in script
        script = script.replace(shown, here)
    (place / "chain.sh").write_text(script)
    return int(slurm.run(["sbatch", "--parsable", "chain.sh"], cwd=place))


def waiting_jobs(slurm: Cluster) -> list[str]:
    return slurm.run(["squeue", "--noheader", "--name=digits", "--format=%i %T %r"]).splitlines()


def test_a_chain_of_jobs_goes_on_after_each_preemption_that_cancels(slurm: Cluster, home: Home, place: Path) -> None:
    """The documented chain trains on through two canceled jobs, counts nothing twice, and leaves no job behind."""
    first = submit_chain(slurm, home, place)
    for num_attempts in (1, 2):
        slurm.wait_for(lambda n=num_attempts: has_stored(home, num_attempts=n), timeout_s=120)  # type: ignore[misc]
        slurm.run(["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=true"], cwd=place)
    slurm.wait_for(lambda: has_stored(home, num_attempts=3), timeout_s=120)
    finish(place)
    slurm.wait_for(lambda: not waiting_jobs(slurm), timeout_s=120)

    trial = read_trial(home)
    assert slurm.job(first)["JobState"] == "PREEMPTED"
    assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
    assert [start.resumed_steps in trial.checkpoints for start in trial.starts[1:]] == [True, True]
    assert (len(trial.starts), trial.outcome, home.trial_ids()) == (3, "completed", [1])


def test_a_chain_of_jobs_ends_with_an_error_of_the_script(slurm: Cluster, home: Home, place: Path) -> None:
    """A script that fails would fail again, so the job that waits for it is canceled."""
    (place / "train.py").write_text("raise ValueError('no data')")
    first = submit_chain(slurm, home, place)

    assert slurm.await_state(first, *_ENDED)["ExitCode"] == "1:0"
    slurm.wait_for(lambda: not waiting_jobs(slurm))
    assert [path.name for path in place.glob("slurm-*.out")] == [f"slurm-{first}.out"]


def test_each_task_of_an_array_is_a_chain_over_time_limits(slurm: Cluster, home: Home, place: Path) -> None:
    """With the changes that the page names, each task of an array goes on by itself when its time is over."""
    of_array = {
        'CORE_SDK_JOB_ID="$SLURM_JOB_NAME': 'CORE_SDK_JOB_ID="$SLURM_JOB_NAME-$SLURM_ARRAY_TASK_ID',
        '--dependency=afternotok:"$SLURM_JOB_ID"': (
            '--array="$SLURM_ARRAY_TASK_ID" --dependency=afternotok:"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'
        ),
    }
    assert all(each in _DOCUMENT.read_text() for each in of_array.values())
    limits = {"--time=20": "--time=2 --array=1-2", "--signal=USR1@300": "--signal=USR1@20"}

    submit_chain(slurm, home, place, of_array | limits)
    slurm.wait_for(lambda: has_stored(home, num_attempts=2), timeout_s=240)
    slurm.wait_for(lambda: len(home.trial(2).attempts()) == 2)
    finish(place)
    slurm.wait_for(lambda: not waiting_jobs(slurm), timeout_s=120)

    for trial in (read_trial(home, trial_id) for trial_id in home.trial_ids()):
        assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
        assert trial.starts[1].resumed_steps in trial.checkpoints
        assert (len(trial.starts), trial.outcome) == (2, "completed")
    assert home.trial_ids() == [1, 2]


def test_a_launcher_without_srun_would_leave_nodes_idle(slurm: Cluster, home: Home, place: Path) -> None:
    """A launcher without srun in a job of two nodes refuses to train on one of them, and says to use srun."""
    job_id = slurm.submit(f"exec {_LAUNCH}", "-N2", cwd=place)

    assert slurm.await_state(job_id, *_ENDED)["ExitCode"] == "2:0"
    assert "this job has 2 nodes, and the launcher was started on one of them only. Put srun" in output(place, job_id)


def test_several_launchers_on_a_node_are_refused(slurm: Cluster, home: Home, place: Path) -> None:
    """Several launchers on one node are refused, since each would start ranks for all GPUs."""
    job_id = slurm.submit(f"srun --ntasks-per-node=2 {_LAUNCH}", "-N2", "--ntasks-per-node=2", cwd=place)

    assert slurm.await_state(job_id, *_ENDED)["JobState"] == "FAILED"
    assert "srun has started 2 launchers on a node" in output(place, job_id)


def test_a_cancelled_job_saves_first(slurm: Cluster, home: Home, place: Path) -> None:
    """A job that is canceled by `scancel` saves a checkpoint before it ends, and is paused."""
    job_id = slurm.submit(_ON_EACH_NODE, "-N2", cwd=place)
    slurm.wait_for(lambda: has_stored(home))

    slurm.run(["scancel", str(job_id)])

    slurm.await_state(job_id, *_ENDED)
    slurm.wait_for(lambda: read_trial(home).outcome is not None)
    trial = read_trial(home)
    assert trial.outcome == "paused"
    assert trial.checkpoints[-1] == trial.steps[-1]


def test_the_end_of_the_time_is_announced(slurm: Cluster, home: Home, place: Path) -> None:
    """Slurm sends SIGUSR1 up to a minute before the time that `--signal` says: a stop, and long enough."""
    job_id = slurm.submit(_ON_EACH_NODE, "-N2", "--time=2", "--signal=USR1@20", cwd=place)

    assert slurm.await_state(job_id, *_ENDED, timeout_s=150)["ExitCode"] == PAUSED
    assert read_trial(home).outcome == "paused"


def test_a_node_that_dies_is_replaced(home: Home, place: Path) -> None:
    """Slurm notices, and requeues the job on the nodes that are left; nothing is counted twice."""
    with slurm_cluster(3, silence_s=6) as slurm:
        job_id = slurm.submit(_ON_EACH_NODE, "-N2", "--requeue", cwd=place)
        slurm.wait_for(lambda: has_stored(home))
        slurm.host_named(slurm.job(job_id)["BatchHost"]).kill()

        slurm.wait_for(lambda: has_stored(home, num_attempts=2), timeout_s=120)
        finish(place)
        job = slurm.await_state(job_id, *_ENDED)

    trial = read_trial(home)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1")
    assert {start.host for start in trial.starts} != {trial.starts[0].host}
    assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
    assert (len(trial.starts), trial.outcome, home.trial_ids()) == (2, "completed", [1])


@pytest.mark.parametrize(("name", "outcome", "exit_code"), [("USR1", "paused", PAUSED), ("INT", "paused", PAUSED)])
def test_a_signal_to_all_processes_of_a_step_reaches_the_script_of_core_sdk_run(
    slurm: Cluster, home: Home, place: Path, name: str, outcome: str, exit_code: str
) -> None:
    """A signal to all processes of a step stops the script of `core-sdk run` once, and its end is recorded."""
    run = f"exec srun {sys.executable} -m core_sdk._interfaces.cli run -- {sys.executable} -u train.py alone"
    job_id = slurm.submit(run, "-N1", cwd=place)
    slurm.wait_for(lambda: has_stored(home))

    slurm.run(["scancel", f"--signal={name}", f"{job_id}.0"])

    assert slurm.await_state(job_id, *_ENDED)["ExitCode"] == exit_code, output(place, job_id)
    exit_record = home.trial(1).read_exit(1)
    assert read_trial(home).outcome == outcome
    assert exit_record is not None
    assert "KeyboardInterrupt" not in output(place, job_id)
