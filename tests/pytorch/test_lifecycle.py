"""However a Trial is stopped, killed, resumed, continued or searched, its batches equal an undisturbed one's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from execution.master.searches import await_end
from masters import running_master
from processes import wait_for
from pytorch.lifecycle import BATCHES_PER_EPOCH, CONFIG, NUM_BATCHES, Reports, Stage, copy_of, reports, use

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus, Want
from core_sdk._home import Home, open_view
from core_sdk.client import Tracker, TrialState

# Each of them starts torch several times.
CORE_SDK = Path(sys.executable).with_name("core-sdk")
PAUSED = 75
"""The exit status of a trial that was stopped and is to be continued."""

ON_TWO_RANKS = f"{CONFIG}resources: {{slots_per_trial: 2}}\n"
RESTARTED_BY_THE_LAUNCHER = ON_TWO_RANKS.replace(
    "model_def:MyTrial", "python3 -m launch.torch_distributed --max-restarts=1 -- --trial model_def:MyTrial"
).replace("max_restarts: 1", "max_restarts: 0")

SEARCH = """
name: search
entrypoint: model_def:MyTrial
hyperparameters:
  global_batch_size: 8
  batch_s: 0.1
  handicap: {type: categorical, vals: [0.0, 5.0, 10.0, 15.0]}
min_validation_period: {epochs: 1}
scheduling_unit: 1
reproducibility: {experiment_seed: 1}
"""
HALVING = (
    "name: async_halving, metric: validation_loss, max_trials: 4, max_concurrent_trials: 2, num_rungs: 2, divisor: 2"
)
STOPPING = f"{SEARCH}searcher: {{{HALVING}, time_metric: epochs, max_time: 4}}\n"
# The script passes a `max_length` to fit(), as it must where it trains by itself.
PROMOTION = f"{SEARCH}searcher: {{{HALVING}, max_length: {{epochs: 4}}}}\n".replace(
    "model_def:MyTrial", "python3 model_def.py"
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return Stage(tmp_path)


@pytest.fixture
def master(home: Home) -> Iterator[None]:
    with running_master(Home.create(home.root)):
        yield


def completed(home: Home, experiment_id: int) -> tuple[Reports, Reports]:
    """Returns the training reports and validations of the experiment's only trial, which must have come to its end."""
    assert await_end(home, experiment_id).state == "COMPLETED"
    (trial,) = Tracker().get_experiment(experiment_id).get_trials()
    return reports(trial.id), reports(trial.id, "validation")


def assert_whole(training: Reports) -> None:
    """Checks that each batch was trained once, and each sample once per epoch."""
    assert [steps for steps, _ in training] == list(range(1, NUM_BATCHES + 1))
    for first in range(0, NUM_BATCHES, BATCHES_PER_EPOCH):
        epoch = [metrics for _, metrics in training[first : first + BATCHES_PER_EPOCH]]
        assert sum(metrics["ids"] for metrics in epoch) == sum(range(40))
        assert sum(metrics["squares"] for metrics in epoch) == sum(each**2 for each in range(40))


@pytest.mark.usefixtures("master")
def test_pauses_and_a_kill_leave_no_trace_in_an_experiment(home: Home, stage: Stage) -> None:
    """A paused and a killed experiment have the same reports as an undisturbed one."""
    undisturbed = completed(home, stage.submit(home))

    stage.hold_at(7)
    paused = stage.submit(home)
    stage.await_held()
    call(home.root, Want(experiment_id=paused, state="PAUSED", by="a test"))
    stage.go_on()
    wait_for(lambda: call(home.root, GetStatus()).experiments[0].running == ())
    num_before = len(reports(2))
    call(home.root, Want(experiment_id=paused, state="ACTIVE", by="a test"))
    after_pause = completed(home, paused)

    stage.hold_at(11)
    killed = stage.submit(home)
    os.kill(stage.await_held(), signal.SIGKILL)
    stage.go_on()
    after_kill = completed(home, killed)

    assert_whole(undisturbed[0])
    assert 8 <= num_before < NUM_BATCHES
    assert after_pause == undisturbed
    assert after_kill == undisturbed


@pytest.mark.usefixtures("master")
def test_a_restart_by_the_launcher_leaves_no_trace(home: Home, stage: Stage) -> None:
    """If one of two ranks is killed, the launcher's restart leads to the same reports."""
    undisturbed = completed(home, stage.submit(home, ON_TWO_RANKS))

    stage.hold_at(11)
    killed = stage.submit(home, RESTARTED_BY_THE_LAUNCHER)
    os.kill(stage.await_held(), signal.SIGKILL)
    stage.go_on()

    assert [steps for steps, _ in undisturbed[0]] == list(range(1, NUM_BATCHES + 1))
    assert completed(home, killed) == undisturbed


def test_a_trial_that_is_resumed_once_more_goes_on_as_one_that_is_resumed_once(
    home: Home, stage: Stage, tmp_path: Path
) -> None:
    """SIGTERM stops it; `trial resume` goes on with it; in a copy of the home it is killed and resumed again."""
    stage.hold_at(6)
    with started("run", "--", sys.executable, stage.code / "model_def.py") as process:
        stage.await_held()
        process.send_signal(signal.SIGTERM)
        stage.go_on()
        assert process.wait(60) == PAUSED
    another = copy_of(home, tmp_path / "another")
    core_sdk("trial", "resume", 1)
    resumed_once = reports(1), reports(1, "validation")

    use(another)
    stage.hold_at(13)
    with started("trial", "resume", 1) as process:
        os.kill(stage.await_held(), signal.SIGKILL)
        process.wait(60)
    stage.go_on()
    core_sdk("trial", "resume", 1)

    assert_whole(resumed_once[0])
    assert (reports(1), reports(1, "validation")) == resumed_once
    assert Tracker().get_trial(1).state is TrialState.COMPLETED


def test_a_continued_trial_has_the_weights_and_counts_anew(stage: Stage) -> None:
    """A continued trial has the other trial's weights, so that its validation at step 0 equals the other's last one."""
    core_sdk("run", "--", sys.executable, stage.code / "model_def.py")

    core_sdk("trial", "continue", 1)

    (_, last), (first_step, first) = reports(1, "validation")[-1], reports(2, "validation")[0]
    assert first_step == 0
    assert first["validation_loss"] == pytest.approx(last["validation_loss"], rel=1e-6)
    assert_whole(reports(2))


@pytest.mark.usefixtures("master")
def test_a_search_stops_trials_that_fall_behind(home: Home, stage: Stage) -> None:
    """A search stops trials that fall behind; each of them has a checkpoint and is completed."""
    experiment_id = stage.submit(home, STOPPING)

    assert await_end(home, experiment_id).state == "COMPLETED"

    with open_view(home) as view:
        trials = view.trials(experiment_id)
        early = [trial for trial in trials if trial.steps_completed < NUM_BATCHES]
        assert early
        assert {(trial.state, trial.reason) for trial in early} == {("COMPLETED", "stopped by the searcher")}
        assert all(view.checkpoints(trial_id=trial.trial_id) for trial in trials)
    assert max(trial.steps_completed for trial in trials) == NUM_BATCHES


@pytest.mark.usefixtures("master")
def test_a_search_lets_the_best_trials_go_on(home: Home, stage: Stage) -> None:
    """Each trains to the first rung and ends; one that is promoted goes on with the next batch."""
    experiment_id = stage.submit(home, PROMOTION)

    assert await_end(home, experiment_id).state == "COMPLETED"

    trials = Tracker().get_experiment(experiment_id).get_trials()
    lengths = sorted(len(reports(trial.id)) for trial in trials)
    assert lengths[0] == NUM_BATCHES // 2
    assert lengths[-1] == NUM_BATCHES
    for trial in trials:
        training = reports(trial.id)
        assert [steps for steps, _ in training] == list(range(1, len(training) + 1))


def core_sdk(*arguments: object) -> None:
    """Runs `core-sdk`; the command must succeed."""
    result = subprocess.run([CORE_SDK, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


def started(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([CORE_SDK, *map(str, arguments)], stdout=subprocess.DEVNULL)
