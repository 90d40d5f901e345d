"""Whoever is killed while a trial goes back, it goes back all the same, once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from processes import wait_for

from core_sdk._ground.records import AttemptStarted
from core_sdk._home import Home
from core_sdk._home.attempts.setbacks import read_troubles
from core_sdk._home.journal import find_records
from core_sdk.client import Tracker

# It counts to ten, and stores every second step. The loss of step 7 is NaN in the first attempts.
COUNTING = """
import os, sys
from core_sdk import core

fate, times = sys.argv[1], int(sys.argv[2])


def reach(point):
    if fate == point and context.info.trial.attempt == 1:
        os.kill(os.getppid() if os.environ.get("OF_AGENT") else os.getpid(), 9)
        while True:
            pass


with core.init(guards=[core.Guard(metric="loss", not_finite=True, action="go_back", max_times=2)]) as context:
    step = context.info.trial.steps_completed
    setback = context.info.trial.setback
    print("began", context.info.trial.attempt, step, setback and setback.from_steps, flush=True)
    while step < 10:
        step += 1
        loss = float("nan") if step == 7 and context.info.trial.attempt <= times else 1.0 / step
        context.train.report_training_metrics(step, {"loss": loss})
        if step == 7:
            reach("recorded")
        is_stopped = context.preempt.should_preempt()
        if is_stopped:
            reach("stopping")
        if step % 2 == 0 or is_stopped:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "step").write_text(str(step))
        if is_stopped:
            reach("saved")
            break
reach("left")
"""


def command(directory: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    finished = subprocess.run(
        [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=directory,
        env=os.environ | variables,
    )
    return finished.returncode, finished.stdout + finished.stderr


def count(directory: Path, fate: str, times: int = 1, **variables: str) -> tuple[int, str]:
    (directory / "train.py").write_text(COUNTING)
    return command(directory, "run", "--", sys.executable, "train.py", fate, str(times), **variables)


def resumed_steps(home: Home) -> list[int]:
    folder = home.trial(1)
    starts = [
        next(find_records(folder.journal_path(number), ['"attempt"']), None)  # none if the agent was killed before
        for number in folder.attempts()
    ]
    return [start.resumed_steps for start in starts if isinstance(start, AttemptStarted)]


@pytest.mark.parametrize("fate", ["recorded", "stopping", "saved", "left"])
def test_a_script_that_is_killed_while_it_goes_back_goes_back(tmp_path: Path, home: Home, fate: str) -> None:
    """The record of the trouble decides, whatever becomes of the process that wrote it."""
    status, output = count(tmp_path, fate)

    trial = Tracker().get_trial(1)
    assert (status, trial.state.name) == (0, "COMPLETED"), output
    assert resumed_steps(home) == [0, 6]
    assert "began 2 6 7" in output
    assert "went back from step 7 to 6: loss is nan" in output
    assert [each.steps_completed for each in trial.iter_metrics()] == list(range(1, 11))


@pytest.mark.parametrize("fate", ["recorded", "saved"])
def test_a_resume_goes_back_where_the_agent_was_killed(tmp_path: Path, home: Home, fate: str) -> None:
    """A checkpoint that was saved in trouble is passed over."""
    count(tmp_path, fate, OF_AGENT="1")
    wait_for(lambda: home.trial(1).running_attempt() is None)
    assert resumed_steps(home) == [0]

    status, output = command(tmp_path, "trial", "resume", "1")

    assert (status, resumed_steps(home)) == (0, [0, 6]), output
    assert "began 2 6 7" in output


MOMENTS: dict[str, Callable[[Home], Path]] = {
    "the first attempt has ended": lambda home: home.folder(1).exit_path(1),
    "the second attempt is asked for": lambda home: home.folder(1).run_info_path(2),
    "the second attempt has begun": lambda home: home.folder(1).journal_path(2),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victims", ["agent", "agent and script"])
def test_an_agent_that_is_killed_between_two_attempts_has_gone_back(
    tmp_path: Path, home: Home, moment: str, victims: str
) -> None:
    """A resume goes on from the same checkpoint, and the training ends as it would have."""
    (tmp_path / "train.py").write_text(COUNTING)
    kill_at(tmp_path, moment, victims, MOMENTS[moment], home)
    wait_for(lambda: home.folder(1).running_attempt() is None)

    status, output = command(tmp_path, "trial", "resume", "1")

    trial = Tracker().get_trial(1)
    assert (trial.state.name, [each.steps_completed for each in trial.iter_metrics()]) == (
        "COMPLETED",
        list(range(1, 11)),
    ), f"{status} {output}"
    assert resumed_steps(home)[:2] == [0, 6], output
    troubles = read_troubles(home.folder(1), home.folder(1).attempts())
    assert [(attempt, each.action) for attempt, each in troubles] == [(1, "go_back")]


def kill_at(directory: Path, moment: str, victims: str, path_of: Callable[[Home], Path], home: Home) -> None:
    """Starts the training, and kills its agent at this moment, or the agent and all that it has started."""
    run = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, "train.py", "none", "1"]
    dropped = subprocess.DEVNULL
    with subprocess.Popen(run, cwd=directory, env=dict(os.environ), stdout=dropped, stderr=dropped) as process:
        wait_for(lambda: home.root.exists() and home.trial_ids() != [])
        started = psutil.Process(process.pid).children(recursive=True)
        agent = next(each for each in started if "core_sdk._execution.agent" in each.cmdline())
        while not path_of(home).exists():
            assert process.poll() is None, f"it has ended before {moment}"
        killed = [agent, *(agent.children(recursive=True) if victims != "agent" else [])]
        for each in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def test_one_goes_back_at_most_so_many_times(tmp_path: Path, home: Home) -> None:
    """Then it stops, and its last checkpoint counts as one in trouble. One that leads into trouble again does, too."""
    status, output = count(tmp_path, "none", times=9)

    trial = Tracker().get_trial(1)
    assert (status, trial.state.name, resumed_steps(home)) == (75, "PAUSED", [0, 6, 4]), output
    assert "is paused (guard: loss is nan)" in output
    described = json.loads(command(tmp_path, "checkpoint", "list", "--trial", "1", "--json")[1])
    assert {each["steps_completed"] for each in described if each["is_in_trouble"]} == {6, 7}
