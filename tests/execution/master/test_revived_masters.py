"""A master that was killed comes back, and one that was ended on purpose does not."""

from __future__ import annotations

import functools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from execution.master.searches import await_end, submit_text
from interfaces.cli.commands import Finished, StartCli, WarmCli, start_cli_in
from processes import wait_for
from promises import promise

from core_sdk._execution.experiments.calling import call, is_master_running
from core_sdk._execution.experiments.protocol import Down, GetStatus, Want
from core_sdk._execution.experiments.reviving import revive_master
from core_sdk._home import Home

SEARCH = """
name: search
entrypoint: [python, train.py]
hyperparameters: {x: {type: double, minval: 0, maxval: 1}}
searcher: {name: random, metric: loss, max_trials: 2, max_concurrent_trials: 1}
"""

TRAIN = """
import time
from pathlib import Path
from core_sdk import core

with core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1.0})
    print("trains", flush=True)
    while not Path(%r).exists() and not context.preempt.should_preempt():
        time.sleep(0.1)
"""


@pytest.fixture
def run_cli(tmp_path: Path, warm_cli: WarmCli) -> Callable[..., Finished]:
    return functools.partial(warm_cli.run, tmp_path)


def begin(home: Home, tmp_path: Path) -> int:
    """Returns a search whose first trial trains until the file `may end` is there, under a master with two slots."""
    call(Home.create(home.root).root, GetStatus(), options=["--slots=2", "--stay"])
    experiment_id = submit_text(home, tmp_path, SEARCH, TRAIN % str(tmp_path / "may end"))
    await_training(home)
    return experiment_id


def await_training(home: Home) -> None:
    log = home.root / "runs" / "1" / "1.log"
    wait_for(lambda: log.exists() and "trains" in log.read_text())


def kill_master(home: Home) -> None:
    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    wait_for(lambda: not is_master_running(home.root))


@pytest.mark.parametrize(
    "command",
    [
        ("trial", "list"),
        ("queue", "list"),
        ("experiment", "list"),
        ("slot", "list"),
    ],
)
def test_a_command_that_looks_brings_a_killed_master_back(
    home: Home, tmp_path: Path, run_cli: Callable[..., Finished], command: tuple[str, ...]
) -> None:
    """A listing command restarts a killed master with its options."""
    experiment_id = begin(home, tmp_path)
    kill_master(home)

    listed = run_cli(*command)

    assert listed.status == 0, listed.errors
    if command[0] == "queue":
        assert "search" in listed.output
    wait_for(lambda: is_master_running(home.root))
    assert call(home.root, GetStatus()).num_slots == 2
    (tmp_path / "may end").touch()
    assert await_end(home, experiment_id).state == "COMPLETED"


@promise("master-comes-back")
def test_the_end_of_a_trial_brings_a_killed_master_back(home: Home, tmp_path: Path) -> None:
    """The end of a trial restarts a killed master, and the search goes on."""
    experiment_id = begin(home, tmp_path)
    kill_master(home)

    (tmp_path / "may end").touch()

    assert await_end(home, experiment_id).state == "COMPLETED"
    assert len(home.trial_ids()) == 2


@promise("master-comes-back")
def test_a_master_that_was_ended_stays_away(home: Home, tmp_path: Path, run_cli: Callable[..., Finished]) -> None:
    """A master that was ended with `master down` is restarted only by a command that needs it."""
    experiment_id = begin(home, tmp_path)
    assert run_cli("master", "down").status == 0

    for command in (("trial", "list"), ("queue", "list")):
        assert run_cli(*command).status == 0
    (tmp_path / "may end").touch()
    wait_for(lambda: home.folder(1).running_attempt() is None)

    assert not is_master_running(home.root)
    assert not (home.root / "master.json").exists()
    assert run_cli("experiment", "wait", str(experiment_id)).status == 0


def test_an_experiment_at_rest_needs_no_master(home: Home, tmp_path: Path, run_cli: Callable[..., Finished]) -> None:
    """A listing command does not restart the master if its experiments are all paused."""
    experiment_id = begin(home, tmp_path)
    call(home.root, Want(experiment_id=experiment_id, state="PAUSED"))
    wait_for(lambda: call(home.root, GetStatus()).experiments[0].running == ())
    wait_for(lambda: home.experiment(experiment_id).read().search.num_running == 0)  # type: ignore[union-attr]
    kill_master(home)

    assert run_cli("trial", "list").status == 0

    assert not is_master_running(home.root)


def test_a_master_of_another_host_is_not_brought_back(
    home: Home, tmp_path: Path, run_cli: Callable[..., Finished]
) -> None:
    """A killed master of another host is not restarted here."""
    begin(home, tmp_path)
    record = home.root / "master.json"
    kill_master(home)
    record.write_text('{"format":1,"host":"elsewhere","options":[]}')

    assert run_cli("queue", "list").status == 0

    assert not is_master_running(home.root)


def test_a_copy_starts_no_training_of_its_original(
    home: Home, tmp_path: Path, run_cli: Callable[..., Finished]
) -> None:
    """In a copied home no training of the original is started until `activate`."""
    experiment_id = begin(home, tmp_path)
    kill_master(home)
    copied = Home(shutil.copytree(home.root, tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock")))
    in_copy = functools.partial(run_cli, CORE_SDK_HOME=str(copied.root))

    said = [in_copy(*command).errors for command in (("trial", "list"), ("queue", "list"), ("experiment", "list"))]
    waited = in_copy("experiment", "wait", str(experiment_id))

    assert "core-sdk home adopt" in said[0] and said[1:] == ["", ""]
    assert waited.status == 1 and "does not go on here" in waited.errors
    assert not is_master_running(copied.root)
    call(copied.root, GetStatus())  # as a command that begins another experiment would
    wait_for(lambda: _state(copied, experiment_id) == "PAUSED")
    assert copied.folder(1).running_attempt() is None and copied.trial_ids() == [1]
    assert in_copy("experiment", "activate", str(experiment_id)).status == 0
    wait_for(lambda: copied.folder(1).running_attempt() == 2)
    assert run_cli("trial", "list").errors == ""
    wait_for(lambda: is_master_running(home.root))
    assert home.folder(1).running_attempt() == 1
    (tmp_path / "may end").touch()
    assert await_end(home, experiment_id).state == "COMPLETED"
    assert await_end(copied, experiment_id).state == "COMPLETED"
    call(copied.root, Down())


def test_a_home_that_was_moved_goes_on_once_somebody_says_so(
    home: Home, tmp_path: Path, run_cli: Callable[..., Finished]
) -> None:
    """A home that was moved goes on with its experiments after `core-sdk home adopt`."""
    experiment_id = begin(home, tmp_path)
    kill_master(home)
    kept = home.master.rename(tmp_path / "master.json")  # so that the end of the trial brings no master back
    run_cli("trial", "kill", "1")
    wait_for(lambda: home.folder(1).running_attempt() is None)
    moved = Home(shutil.copytree(home.root, tmp_path / "moved", ignore=shutil.ignore_patterns("*.sock")))
    shutil.rmtree(home.root)
    kept.rename(moved.master)
    in_moved = functools.partial(run_cli, CORE_SDK_HOME=str(moved.root))
    (tmp_path / "may end").touch()

    assert "core-sdk home adopt" in in_moved("trial", "list").errors
    adopted = in_moved("home", "adopt")

    assert adopted.status == 0, adopted.errors
    assert "its experiments go on" in adopted.output
    assert await_end(moved, experiment_id).state == "COMPLETED"
    assert "nothing in" in in_moved("home", "adopt").output
    assert in_moved("home", "copy").status == 0
    call(moved.root, Down())


def _state(home: Home, experiment_id: int) -> str:
    search = home.experiment(experiment_id).read().search
    return "" if search is None else search.state


def test_a_command_that_was_its_own_master_is_not_replaced(
    home: Home, tmp_path: Path, run_cli: Callable[..., Finished]
) -> None:
    """An experiment started with `--local` is not continued by a master when its command was killed."""
    start: StartCli = functools.partial(start_cli_in, tmp_path)
    (tmp_path / "train.py").write_text(TRAIN % str(tmp_path / "may end"))
    (tmp_path / "search.yaml").write_text(SEARCH)
    script = start("experiment", "create", "search.yaml", "--local")
    await_training(home)
    script.process.kill()
    script.wait()

    assert run_cli("trial", "list").status == 0
    (tmp_path / "may end").touch()
    wait_for(lambda: home.folder(1).running_attempt() is None)

    assert not is_master_running(home.root)


def test_trials_hear_signals_though_the_command_that_started_their_master_did_not(home: Home, tmp_path: Path) -> None:
    """`nohup core-sdk experiment create &`: later trials of that master are not in the background of anything."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    looking = f"print(*(signal.getsignal(number) == signal.SIG_IGN for number in {tuple(map(int, numbers))}))"
    (tmp_path / "may end").touch()

    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        call(Home.create(home.root).root, GetStatus(), options=["--slots=2", "--stay"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    experiment_id = submit_text(
        home, tmp_path, SEARCH, f"import signal\n{looking}\n" + TRAIN % str(tmp_path / "may end")
    )
    await_end(home, experiment_id)

    assert (home.root / "runs" / "1" / "1.log").read_text().splitlines()[0] == "False False False"


def test_a_master_ends_with_the_path_of_its_home_and_the_next_one_goes_on(home: Home, tmp_path: Path) -> None:
    """If its home is renamed, the master ends; once its trial has ended, the next one goes on at the new path."""
    experiment_id = begin(home, tmp_path)
    moved = Home(home.root.with_name("moved"))

    home.root.rename(moved.root)
    wait_for(lambda: not is_master_running(moved.root))
    (tmp_path / "may end").touch()
    wait_for(lambda: not moved.trial(1).is_running(1))
    revive_master(moved.root, waits=True)

    try:
        await_end(moved, experiment_id)
        assert moved.trial_ids() == [1, 2]
        assert not home.root.exists()
    finally:
        call(moved.root, Down())
