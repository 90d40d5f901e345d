"""Ranks under real launchers are one trial: paused, resumed and restarted as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import TIMEOUT_S, Script

from core_sdk._home import Home
from core_sdk.client import Tracker

PAUSED = 75
BIN = Path(sys.executable).parent

LAUNCHERS = {
    "torchrun": [str(BIN / "torchrun"), "--nproc-per-node=2", "--max-restarts=1"],
    "ours": [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", "--max-restarts=1", "--"],
}

# Counts to 30 and stores every tenth step; waits at step 12 of the first attempt to be stopped, or fails there.
SCRIPT = r"""
import os, sys, time
import core_sdk
from core_sdk import core

distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed) as context:
    latest = context.info.latest_checkpoint
    attempt = context.info.trial.attempt
    step = 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as path:
            step = int((path / "step").read_text())
    # One write: torchrun lets the ranks' output run into each other.
    told = core_sdk.get_cluster_info()
    if told is not None and (told.latest_checkpoint, told.trial.attempt) != (latest, attempt):
        raise AssertionError(f"get_cluster_info() speaks of {told}")
    os.write(1, f"RANK {distributed.rank} ATTEMPT {attempt} FROM {step}\n".encode())
    while step < 30:
        step += 1
        distributed.allgather(step)
        context.train.report_training_metrics(step, {"loss": 1 / step})
        context.train.report_progress(step / 30)
        if step == 12 and attempt == 1 and sys.argv[1] == "fails" and distributed.rank == 1:
            raise ValueError("the battery is empty")
        must_stop = context.preempt.should_preempt()
        if step == 12 and attempt == 1 and sys.argv[1] == "waits":
            if distributed.rank == 0:
                print("WAITING", flush=True)
            while not must_stop:
                time.sleep(0.01)
                must_stop = context.preempt.should_preempt()
        if distributed.rank == 0 and (must_stop or step % 10 == 0):
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "step").write_text(str(step))
        if must_stop:
            break
"""


class Trainings:
    """Starts trainings on two ranks with `core-sdk run`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Script] = []
        (directory / "train.py").write_text(textwrap.dedent(SCRIPT))

    def command(self, launcher: str, what: str) -> list[str]:
        return [*LAUNCHERS[launcher], "train.py", what]

    def start(self, *command: str) -> Script:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self._started.append(Script(process))
        return self._started[-1]

    def core_sdk(self, *arguments: str) -> Script:
        return self.start(str(BIN / "core-sdk"), *arguments)

    def kill(self) -> None:
        """Terminates what still runs, so that launchers end their ranks too."""
        for script in self._started:
            if script.process.poll() is None:
                script.process.terminate()
            script.process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def trainings(tmp_path: Path) -> Iterator[Trainings]:
    trainings = Trainings(tmp_path)
    yield trainings
    trainings.kill()


def ranks_said(output: str) -> list[str]:
    """Returns the lines of the ranks in rank order, without the launcher's prefixes."""
    return sorted(line[line.index("RANK") :] for line in output.splitlines() if "RANK" in line)


@pytest.mark.parametrize(("launcher", "how"), [("torchrun", "pause"), ("ours", "SIGTERM")])
def test_ranks_are_paused_and_resumed_as_one_trial(trainings: Trainings, home: Home, launcher: str, how: str) -> None:
    """A paused training resumes from one checkpoint on every rank, and each step is reported once."""
    script = trainings.core_sdk("run", "--", *trainings.command(launcher, "waits"))
    line = "WAITING" if launcher == "torchrun" else "[rank=0] WAITING"
    script.read_until(line)

    if how == "pause":
        assert trainings.core_sdk("trial", "pause", "1").wait()[0] == 0
    else:
        script.process.send_signal(signal.SIGTERM)
    stopped = script.wait()
    paused = Tracker().get_trial(1)
    code, output, errors = trainings.core_sdk("trial", "resume", "1").wait()

    trial = Tracker().get_trial(1)
    assert stopped[0] == PAUSED, stopped
    assert (paused.state.name, paused.steps_completed) == ("PAUSED", 12)
    assert code == 0, (output, errors)
    assert ranks_said(output) == ["RANK 0 ATTEMPT 2 FROM 12", "RANK 1 ATTEMPT 2 FROM 12"]
    assert (trial.state.name, trial.num_attempts, trial.progress) == ("COMPLETED", 2, 1.0)
    assert [report.steps_completed for report in trial.iter_metrics(superseded=True)] == list(range(1, 31))
    assert [rank.progress for rank in trial.ranks] == [1.0, 1.0]
    assert home.trial_ids() == [1]


@pytest.mark.parametrize(("launcher", "is_run"), [("torchrun", True), ("ours", False)])
def test_restarted_ranks_go_on_with_the_trial(trainings: Trainings, home: Home, launcher: str, is_run: bool) -> None:
    """Ranks that the launcher restarts continue as the next attempt, from the newest checkpoint."""
    command = trainings.command(launcher, "fails")

    script = trainings.core_sdk("run", "--", *command) if is_run else trainings.start(*command)
    code, output, errors = script.wait()

    trial = Tracker().get_trial(1)
    assert code == 0, (output, errors)
    assert ranks_said(output) == [
        "RANK 0 ATTEMPT 1 FROM 0",
        "RANK 0 ATTEMPT 2 FROM 10",
        "RANK 1 ATTEMPT 1 FROM 0",
        "RANK 1 ATTEMPT 2 FROM 10",
    ]
    assert (trial.state.name, trial.num_attempts) == ("COMPLETED", 2)
    assert [report.steps_completed for report in trial.iter_metrics()] == list(range(1, 31))
    assert home.trial_ids() == [1]


def test_a_rank_that_fails_for_good_is_the_trials_reason(trainings: Trainings) -> None:
    """Without restarts, the failing rank's error is the trial's reason."""
    command = [part for part in trainings.command("ours", "fails") if "restarts" not in part]

    code, output, errors = trainings.core_sdk("run", "--", *command).wait()

    trial = Tracker().get_trial(1)
    assert code == 1, (output, errors)
    assert (trial.state.name, trial.reason) == ("ERROR", "rank 1 failed: ValueError: the battery is empty")
