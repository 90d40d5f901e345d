"""Experiments with `engine: slurm`: the master submits a job for each attempt, and jobs go on without it."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

from execution.slurm.cluster import Cluster, slurm_cluster
from execution.slurm.trainings import finish, read_trial
from parts import needs

from core_sdk._execution.experiments.calling import lock_path
from core_sdk._ground.alive import signed_by
from core_sdk._ground.records import CheckpointStored
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records
from core_sdk.errors import TrialNotFoundError

pytestmark = needs("hosts", "slurm")

_CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]
_CONFIG = f"""\
name: digits
entrypoint: {sys.executable} -u train.py alone
hyperparameters: {{lr: {{type: categorical, vals: [0.1, 0.2]}}}}
searcher: {{name: grid, metric: loss}}
resources: {{engine: slurm, slots_per_trial: 1, slurm: {{partition: all, sbatch_args: [--cpus-per-task=2]}}}}
"""


def create(slurm: Cluster, place: Path, config: str = _CONFIG) -> tuple[int, str]:
    (place / "config.yaml").write_text(config)
    code, _, errors = slurm.try_to_run([*_CORE_SDK, "experiment", "create", "config.yaml"], cwd=place)
    return code, errors


def jobs(slurm: Cluster) -> dict[int, str]:
    """Returns the jobs that wait or run, by trial; in a home with less than a thousand trials that is the place."""
    answer = slurm.run(["squeue", "--noheader", "--array", "--format=%i"]).split()
    return {int(job_id.partition("_")[2]): job_id for job_id in answer if "_" in job_id}


def has_stored(home: Home, trial_id: int, attempt: int) -> bool:
    with contextlib.suppress(TrialNotFoundError, FileNotFoundError):
        records = read_records(home.trial(trial_id).journal_path(attempt))
        return any(isinstance(record, CheckpointStored) for record in records)
    return False


def kill_master(slurm: Cluster, home: Home) -> None:
    """Kills the master, whose pid belongs to its host."""
    pid = signed_by(lock_path(home.root))
    assert pid is not None
    slurm.run(["kill", "-9", str(pid)])


def test_trials_are_jobs_that_outlive_the_master(slurm: Cluster, home: Home, place: Path) -> None:
    """A killed master is followed by one that finds running and waiting jobs; a preempted trial gets another job."""
    blocker = int(slurm.run(["sbatch", "--parsable", "--nodes=1", "--cpus-per-task=4", "--wrap=sleep 600"], cwd=place))
    slurm.await_state(blocker, "RUNNING")
    other = int(slurm.run(["sbatch", "--parsable", "--nodes=1", "--cpus-per-task=2", "--wrap=sleep 600"], cwd=place))
    slurm.await_state(other, "RUNNING")
    assert create(slurm, place) == (0, "")
    slurm.wait_for(lambda: has_stored(home, 1, 1) and 2 in jobs(slurm))  # the second trial waits
    before = jobs(slurm)

    kill_master(slurm, home)
    slurm.run([*_CORE_SDK, "queue", "list"], cwd=place)
    slurm.run(["scancel", str(other)])
    slurm.wait_for(lambda: has_stored(home, 2, 1))
    after = jobs(slurm)
    slurm.run(["scancel", str(blocker)])
    slurm.run(["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=true"], cwd=place)
    slurm.wait_for(lambda: has_stored(home, 1, 2) and has_stored(home, 2, 2), timeout_s=120)
    finish(place)
    slurm.wait_for(lambda: state(home) == "COMPLETED")

    assert before.items() <= after.items()
    for trial_id in (1, 2):
        trial = read_trial(home, trial_id)
        assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
        assert trial.starts[1].resumed_steps in trial.checkpoints
        assert (len(trial.starts), trial.outcome) == (2, "completed")
    assert home.trial_ids() == [1, 2]
    assert "#SBATCH --cpus-per-task=2" in (home.trial(1).path / "slurm.sh").read_text()


def state(home: Home) -> str:
    with open_view(home) as view:
        return view.experiment(1).state


def trial_states(home: Home) -> list[tuple[str, str]]:
    with open_view(home) as view:
        return [(trial.state, trial.reason) for trial in view.trials()]


def test_jobs_are_paused_and_canceled_with_their_experiment(slurm: Cluster, home: Home, place: Path) -> None:
    """A pause saves and ends the jobs; somebody's scancel ends its trial; after a kill no job is left."""
    assert create(slurm, place) == (0, "")
    slurm.wait_for(lambda: has_stored(home, 1, 1) and has_stored(home, 2, 1))
    first = jobs(slurm)[1]

    slurm.run(["scancel", str(first)])
    slurm.wait_for(lambda: 1 not in jobs(slurm) and "CANCELED" in dict(trial_states(home)))
    slurm.run([*_CORE_SDK, "experiment", "pause", "1"], cwd=place)
    slurm.wait_for(lambda: not jobs(slurm))
    paused = trial_states(home)
    slurm.run([*_CORE_SDK, "experiment", "activate", "1"], cwd=place)
    slurm.wait_for(lambda: has_stored(home, 2, 2))
    slurm.run([*_CORE_SDK, "experiment", "kill", "1"], cwd=place)
    slurm.wait_for(lambda: not jobs(slurm) and state(home) == "CANCELED")

    told = f"Slurm's job {first} was canceled with scancel, and not by Core SDK"
    assert dict(paused)["CANCELED"] == told and "PAUSED" in dict(paused)
    assert [each for each, _ in trial_states(home)] == ["CANCELED", "CANCELED"]


def nices(slurm: Cluster) -> dict[str, set[str]]:
    """Returns by how much the jobs that wait are put back, by the array."""
    found: dict[str, set[str]] = {}
    for line in slurm.run(["squeue", "--noheader", "--array", "--states=PENDING", "--format=%F %y"]).splitlines():
        array, nice = line.split()
        found.setdefault(array, set()).add(nice)
    return found


def test_trials_are_arrays_in_the_order_of_their_priorities(slurm: Cluster, home: Home, place: Path) -> None:
    """Trials that begin together are one array; a priority moves the jobs that wait, and a new master takes them."""
    blocker = slurm.run(["sbatch", "--parsable", "--nodes=2", "--exclusive", "--wrap=sleep 600"], cwd=place).strip()
    slurm.await_state(int(blocker), "RUNNING")
    many = _CONFIG.replace("[0.1, 0.2]", str([one / 100 for one in range(1, 31)])).replace(
        "loss}", "loss, max_concurrent_trials: 40}"
    )
    assert create(slurm, place, many) == (0, "")
    slurm.wait_for(lambda: len(jobs(slurm)) == 30)
    assert create(slurm, place, _CONFIG.replace("slots_per_trial: 1", "slots_per_trial: 1, priority: 10")) == (0, "")
    slurm.wait_for(lambda: len(jobs(slurm)) == 32)
    before = jobs(slurm)
    first, second = sorted({job_id.partition("_")[0] for job_id in before.values()}, key=int)

    slurm.wait_for(lambda: nices(slurm) == {first: {"100"}, second: {"0"}})
    slurm.run([*_CORE_SDK, "experiment", "set", "priority", "2", "60"], cwd=place)
    slurm.wait_for(lambda: nices(slurm) == {first: {"0"}, second: {"100"}})
    slurm.run([*_CORE_SDK, "queue", "move", "2", "--ahead-of", "1"], cwd=place)
    slurm.wait_for(lambda: nices(slurm) == {first: {"100"}, second: {"0"}})
    slurm.run([*_CORE_SDK, "master", "down"], cwd=place)
    after = jobs(slurm)
    rows = json.loads(slurm.run([*_CORE_SDK, "queue", "list", "--json"], cwd=place))
    for experiment_id in ("1", "2"):
        slurm.run([*_CORE_SDK, "experiment", "kill", experiment_id], cwd=place)
    slurm.wait_for(lambda: not jobs(slurm))
    slurm.run(["scancel", blocker])

    assert before == after and set(before) == set(range(1, 33))
    shown = [(row["experiment_id"], row["priority"], row["num_waiting"], row["engine"]) for row in rows]
    assert shown == [(2, 42, 2, "slurm"), (1, 42, 30, "slurm")]
    assert home.trial_ids() == list(range(1, 33)) or not home.trial_ids()


def test_what_no_job_can_be_is_refused_with_words(slurm: Cluster, home: Home, place: Path) -> None:
    """What breaks a job, and what Slurm refuses, is refused at the submission."""
    broken = create(slurm, place, _CONFIG.replace("--cpus-per-task=2", "--array=1-3"))
    unknown = create(slurm, place, _CONFIG.replace("partition: all", "partition: nope"))
    large = create(slurm, place, _CONFIG.replace("--cpus-per-task=2", "--cpus-per-task=99"))

    assert broken[0] == 2 and "--array cannot be given to sbatch here: a job runs one trial" in broken[1]
    assert unknown[0] == 2, unknown
    assert "Invalid partition name specified. There is all, urgent." in unknown[1]
    assert large[0] == 2 and "Slurm has not taken the job" in large[1]
    assert home.experiment_ids() == [] and not jobs(slurm)


def test_a_trial_goes_on_after_its_node_has_died(home: Home, place: Path) -> None:
    """The death of a node counts as a restart, and the trial's next job starts on another one."""
    with slurm_cluster(3, silence_s=6) as slurm:
        assert create(slurm, place, _CONFIG.replace("[0.1, 0.2]", "[0.1]")) == (0, "")
        slurm.wait_for(lambda: has_stored(home, 1, 1))
        slurm.host_named(slurm.job(jobs(slurm)[1])["BatchHost"]).kill()
        slurm.wait_for(lambda: has_stored(home, 1, 2), timeout_s=120)
        finish(place)
        slurm.wait_for(lambda: state(home) == "COMPLETED")

    trial = read_trial(home)
    assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
    assert trial.starts[1].resumed_steps in trial.checkpoints
