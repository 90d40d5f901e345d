"""`core-sdk run --engine slurm` with a real Slurm: jobs that wait, follow each other, are preempted and canceled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from execution.slurm.cluster import Cluster, slurm_cluster
from execution.slurm.trainings import finish, has_stored, read_trial
from parts import needs

from core_sdk._home import Home, open_view

pytestmark = needs("hosts", "slurm")

_CORE_SDK = [sys.executable, "-m", "core_sdk._interfaces.cli"]
_RUN = [*_CORE_SDK, "run", "--engine", "slurm"]
_ALONE = ["--", sys.executable, "-u", "train.py", "alone"]


class Foreground:
    """A command of ours on the login node, whose output can be read while it runs."""

    def __init__(self, slurm: Cluster, place: Path, argv: list[str]) -> None:
        self._output = place / "shown"
        with self._output.open("w") as output:
            self._process = slurm.start([*_RUN, *argv], cwd=place, stdout=output, stderr=subprocess.STDOUT)

    @property
    def shown(self) -> str:
        return self._output.read_text()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(timeout=120)


def job_ids(slurm: Cluster) -> list[int]:
    """Returns the jobs that wait or run, in order."""
    return sorted(map(int, slurm.run(["squeue", "--noheader", "--format=%i"]).split()))


def state(home: Home, trial_id: int = 1) -> tuple[str, str]:
    with open_view(home) as view:
        trial = view.trial(trial_id)
    return trial.state, trial.reason


def assert_exact(home: Home, num_attempts: int) -> None:
    """Asserts that each step counts once, and each later attempt went on from a checkpoint."""
    trial = read_trial(home)
    assert len(trial.starts) == num_attempts
    assert list(trial.steps) == list(range(1, len(trial.steps) + 1))
    assert all(start.resumed_steps in trial.checkpoints for start in trial.starts[1:])
    assert home.trial_ids() == [1]


def test_a_training_goes_on_in_the_next_job_when_its_time_is_nearly_over(
    slurm: Cluster, home: Home, place: Path
) -> None:
    """Slurm's announcement stops it; the job submits the next one, and one command shows both to the end."""
    running = Foreground(slurm, place, ["--slots=1", *_ALONE])
    slurm.wait_for(lambda: has_stored(home))
    [first] = job_ids(slurm)

    slurm.run(["scancel", "--batch", "--signal=USR1", str(first)])
    slurm.wait_for(lambda: has_stored(home, num_attempts=2))
    finish(place)

    assert running.wait() == 0, running.shown
    assert_exact(home, 2)
    assert state(home) == ("COMPLETED", "")
    lines = running.shown.splitlines()
    assert f"core-sdk: attempt 2 goes on, in job {first + 1}" in lines
    assert [line for line in lines if line.startswith("began")] == [
        "began 0 of 1 at 0",
        f"began 0 of 1 at {read_trial(home).starts[1].resumed_steps}",
    ]
    assert lines[-1] == "core-sdk: trial 1 completed"
    assert job_ids(slurm) == []


def test_a_preempted_job_is_followed_and_a_canceled_one_is_told(slurm: Cluster, home: Home, place: Path) -> None:
    """Where the site cancels what it preempts, the next job goes on. After somebody's scancel none does."""
    running = Foreground(slurm, place, _ALONE)
    slurm.wait_for(lambda: has_stored(home))
    slurm.run(["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=true"], cwd=place)
    slurm.wait_for(lambda: has_stored(home, num_attempts=2), timeout_s=120)

    [second] = job_ids(slurm)
    slurm.run(["scancel", str(second)])

    assert running.wait() == 130, running.shown
    assert_exact(home, 2)
    assert state(home) == ("CANCELED", f"Slurm's job {second} was canceled with scancel, and not by Core SDK")
    slurm.wait_for(lambda: job_ids(slurm) == [])


def test_two_nodes_train_as_one_trial(slurm: Cluster, home: Home, place: Path) -> None:
    """The launcher of each node joins the others without an option; a pause stops all, and a resume is a new job."""
    launcher = [sys.executable, "-m", "launch.torch_distributed", "train.py", "ranks", "given"]
    slurm.run([*_RUN, "--nodes=2", "--slots=2", "--detach", "--", *launcher], cwd=place)
    slurm.wait_for(lambda: has_stored(home))
    [first] = job_ids(slurm)

    slurm.run([*_CORE_SDK, "trial", "pause", "1"], cwd=place)
    slurm.await_state(first, "FAILED")
    is_paused = state(home)
    code, _, refusal = slurm.try_to_run([*_CORE_SDK, "trial", "resume", "1", "--detach"], cwd=place)
    slurm.wait_for(lambda: has_stored(home, num_attempts=2))
    finish(place)

    assert (code, is_paused) == (0, ("PAUSED", "core-sdk trial pause")), refusal
    assert slurm.await_state(first + 1, "COMPLETED", "FAILED")["JobState"] == "COMPLETED"
    lines = home.trial(1).log_path(1).read_text().splitlines()
    assert {line for line in lines if "told" in line} == {
        "[rank=0] told ['h1', 'h2'] 0 [1, 1]",
        "[rank=1] told ['h1', 'h2'] 1 [1, 1]",
    }
    assert {"[rank=0] began 0 of 2 at 0", "[rank=1] began 1 of 2 at 0"} <= set(lines)
    assert_exact(home, 2)


def test_a_command_that_is_submitted_needs_no_master(slurm: Cluster, home: Home, place: Path) -> None:
    """`submit --engine slurm` submits what `run --engine slurm --detach` does, and refuses what only a master obeys."""
    submit = [*_CORE_SDK, "submit", "--engine", "slurm"]

    code, _, refusal = slurm.try_to_run([*submit, "--priority=1", *_ALONE], cwd=place)
    printed = slurm.run([*submit, "--slots=1", *_ALONE], cwd=place)
    slurm.wait_for(lambda: has_stored(home))
    finish(place)
    slurm.wait_for(lambda: state(home)[0] == "COMPLETED")

    assert (code, printed) == (2, "1\n")
    assert "experiment create" in refusal
    assert not list(home.root.glob("master*"))


def test_bad_requests_get_words(slurm: Cluster, home: Home, place: Path) -> None:
    """A partition that does not exist is answered with those that do, and what can never start says why."""
    code, _, errors = slurm.try_to_run([*_RUN, "--sbatch=--partition=nope", *_ALONE], cwd=place)
    assert (code, home.trial_ids()) == (1, [])
    assert "Slurm has not taken the job" in errors and "There is all, urgent." in errors

    waiting = Foreground(slurm, place, ["--nodes=9", *_ALONE])
    slurm.wait_for(lambda: "It cannot start so" in waiting.shown)
    is_waiting = state(home, 2)
    [queued] = json.loads(slurm.run([*_CORE_SDK, "queue", "list", "--json"], cwd=place))
    killed, _, refusal = slurm.try_to_run([*_CORE_SDK, "trial", "kill", "2"], cwd=place)
    waiting.signal(signal.SIGINT)

    assert waiting.wait() == 130
    [job_id] = [line.split()[5] for line in waiting.shown.splitlines() if "is job" in line]
    assert is_waiting == ("QUEUED", f"waits in Slurm's queue as job {job_id}")
    assert killed == 1 and f"it runs in Slurm, as job {job_id}. `scancel {job_id}` ends it." in refusal
    assert state(home, 2) == ("CANCELED", f"SIGINT while job {job_id} was waiting")
    assert job_ids(slurm) == []
    assert (queued["trial_id"], queued["engine"], queued["state"], queued["place"]) == (2, "slurm", "QUEUED", None)
    assert queued["why"].startswith(f"job {job_id} waits: ") and queued["since"]


def test_a_job_that_waits_is_paused_and_one_that_runs_is_sent_sigterm(slurm: Cluster, home: Home, place: Path) -> None:
    """A pause takes a job out of the queue, and a resume submits another; a SIGTERM of the user's is no time limit."""
    slurm.run([*_RUN, "--sbatch=--hold", "--detach", *_ALONE], cwd=place)
    held = state(home)
    refused, _, refusal = slurm.try_to_run([*_CORE_SDK, "trial", "delete", "1", "--yes"], cwd=place)
    slurm.run([*_CORE_SDK, "trial", "pause", "1"], cwd=place)
    paused, left = state(home), job_ids(slurm)
    slurm.run([*_CORE_SDK, "trial", "resume", "1", "--detach"], cwd=place)
    [second] = job_ids(slurm)
    slurm.run(["scontrol", "release", str(second)])
    slurm.wait_for(lambda: has_stored(home))
    slurm.run(["scancel", "--batch", "--signal=TERM", str(second)])
    slurm.wait_for(lambda: state(home)[0] == "PAUSED")
    slurm.wait_for(lambda: job_ids(slurm) == [])

    assert (held, paused, left) == (
        ("QUEUED", f"waits in Slurm's queue as job {second - 1}"),
        ("PAUSED", "core-sdk trial pause"),
        [],
    )
    assert refused == 1 and "`core-sdk trial pause 1` takes a job that waits out of the queue" in refusal
    assert state(home) == ("PAUSED", f"Slurm's job {second} was sent SIGTERM")


def test_a_job_that_is_canceled_while_it_waits_is_told_by_lists(slurm: Cluster, home: Home, place: Path) -> None:
    """Nothing of a detached job runs that could record its end: who looks at the trial asks Slurm, and records it."""
    slurm.run([*_RUN, "--nodes=9", "--detach", *_ALONE], cwd=place)
    [job_id] = job_ids(slurm)

    before = slurm.run([*_CORE_SDK, "trial", "list", "--csv"], cwd=place)
    slurm.run(["scancel", str(job_id)])
    after = slurm.run([*_CORE_SDK, "trial", "list", "--csv"], cwd=place)

    assert f"waits in Slurm's queue as job {job_id}" in before
    assert "CANCELED" in after
    assert state(home) == ("CANCELED", f"Slurm's job {job_id} was canceled with scancel, and not by Core SDK")
    assert slurm.run([*_CORE_SDK, "queue", "list"], cwd=place) == "Nothing waits or runs.\n"


def test_a_home_that_a_node_does_not_see_is_told(slurm: Cluster, home: Home, place: Path, tmp_path: Path) -> None:
    """A job that leaves no trace in the home ends with the advice to share it."""
    (tmp_path / "elsewhere").mkdir()
    home.root.mkdir(exist_ok=True)
    slurm.host_named("h2").bind(tmp_path / "elsewhere", home.root)

    running = Foreground(slurm, place, ["--sbatch=--nodelist=h2", *_ALONE])

    assert running.wait() == 75, running.shown
    assert "must lie on a file system that all nodes share" in running.shown


def test_a_node_that_lacks_the_python_of_the_job_is_told(slurm: Cluster, home: Home, place: Path) -> None:
    """The trial's reason is what the node says of a job that cannot begin."""
    slurm.host_named("h2").bind(place / "train.py", sys.executable)

    running = Foreground(slurm, place, ["--sbatch=--nodelist=h2", *_ALONE])

    assert running.wait() == 75, running.shown
    assert "has ended as FAILED" in running.shown and "before the training began: " in running.shown
    assert "Permission denied" in state(home)[1]
    slurm.host_named("h2").run(["umount", Path(sys.executable).resolve()])


def test_without_slurm_the_engine_is_refused(home: Home, place: Path) -> None:
    """A machine without sbatch says so, and no trial is left."""
    variables = {"PATH": str(place), "CORE_SDK_HOME": str(home.root)}

    done = subprocess.run([*_RUN, *_ALONE], cwd=place, env=variables, capture_output=True, text=True)

    assert done.returncode == 1 and home.trial_ids() == []
    assert "there is no `sbatch` on this machine. Slurm's commands are found on the login nodes" in done.stderr


@pytest.mark.timeout(1200)
def test_a_trial_outlives_its_time_limit_and_its_nodes(home: Home, place: Path) -> None:
    """Two jobs are cut off by a real limit, and the node of the next one dies: each step still counts once."""
    with slurm_cluster(3, silence_s=6) as slurm:
        running = Foreground(slurm, place, ["--sbatch=--time=2", "--sbatch=--signal=B:USR1@60", *_ALONE])
        slurm.wait_for(lambda: has_stored(home, num_attempts=3), timeout_s=400)
        [job_id] = job_ids(slurm)
        slurm.host_named(slurm.job(job_id)["BatchHost"]).kill()
        slurm.wait_for(lambda: has_stored(home, num_attempts=4), timeout_s=240)
        finish(place)

        assert running.wait() == 0, running.shown

    assert_exact(home, 4)
