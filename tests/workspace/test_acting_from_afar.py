"""What people ask of a trial in a workspace is done where it trains: by a lab's server, a pusher and a training."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from home.journals import new_trial, record, report
from interfaces.lab.lab_server import DAY_S, LabServer, new_lab, serving_lab
from processes import wait_for

from core_sdk import client
from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.following import Follower
from core_sdk._execution.experiments.picture import read_picture
from core_sdk._execution.experiments.protocol import Down, GetStatus
from core_sdk._ground.alive import is_alive
from core_sdk._home import Home, open_view
from core_sdk._home.history import read_history
from core_sdk._home.pushes import ActionRequests, Login, log_in, pusher_lock, wanted_pushes
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher
from core_sdk.errors import CoreSDKError

TRAINING = """
import signal, sys, time
from core_sdk import core

with core.init(name="digits", workspace="vision") as ctx:
    step, blocked = 0, len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    if (latest := ctx.info.latest_checkpoint) is not None:
        with ctx.checkpoint.restore_path(latest) as path:
            step = int((path / "weights").read_text())
    while not ctx.preempt.should_preempt():
        step += 1
        ctx.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / step, "blocked": blocked})
        time.sleep(0.05)
    with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
        (path / "weights").write_text(str(step))
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabServer]:
    """A lab's server. Ada owns the workspace `vision`, bob and eve are writers there, and bob trains here."""
    lab, token = new_lab(tmp_path / "lab")
    for person in ("bob", "eve"):
        lab.people.set_role("vision", person, "writer")
    with serving_lab(lab, token) as server:
        yield server


@pytest.fixture
def home(home: Home, lab: LabServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    log_in(Login(name="vision", url=f"{lab.url}/w/vision", token=token_of(lab, "bob")))
    home = Home.create(home.root)
    yield home
    for trial in client.Tracker(home.root).list_trials():
        with contextlib.suppress(CoreSDKError):
            trial.kill()
    shutil.rmtree(home.root / "pushes", ignore_errors=True)  # which ends the pusher
    wait_for(lambda: not is_alive(pusher_lock(home.root)))


def token_of(lab: LabServer, person: str) -> str:
    return lab.lab.people.issue("token", person, DAY_S, workspace="vision")[0]


def core_sdk(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables)


def begin(tmp_path: Path) -> None:
    """Starts a training in the background that ends when it is asked to stop."""
    (tmp_path / "train.py").write_text(TRAINING)
    done = core_sdk("run", "--detach", "--", sys.executable, str(tmp_path / "train.py"))
    assert done.returncode == 0, done.stderr


def tracker(lab: LabServer, person: str) -> client.Tracker:
    log_in(Login(name=person, url=f"{lab.url}/w/vision", token=token_of(lab, person)))
    return client.connect(person)


def state_of(home: Home) -> str:
    with open_view(home) as view:
        return view.trial(1).state


def test_a_trial_is_paused_and_resumed_from_afar(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """The command waits until the home has done it, within seconds, and says the same as at home."""
    begin(tmp_path)
    workspace = lab.lab.home("vision")
    wait_for(lambda: workspace.trial_ids() == [1] and workspace.folder(1).running_attempt() is not None)

    labelled = core_sdk("--workspace", "vision", "trial", "label", "1", "good")
    paused = core_sdk("--workspace", "vision", "trial", "pause", "1")
    wait_for(lambda: state_of(home) == "PAUSED")
    resumed = core_sdk("--workspace", "vision", "trial", "resume", "1")

    assert (paused.returncode, paused.stderr) == (
        0,
        "core-sdk: trial 1 was asked to stop: it does when it next calls should_preempt()\n",
    )
    assert labelled.stdout == "labels of trial 1: good\n"
    assert resumed.returncode == 0, resumed.stderr
    assert "as its attempt 2" in resumed.stderr
    assert home.folder(1).running_attempt() == 2
    wait_for(lambda: workspace.folder(1).running_attempt() == 2)
    asked = ActionRequests(workspace.root).all()
    assert [(one.verb, one.by) for one in asked] == [("label", "bob"), ("pause", "bob"), ("resume", "bob")]
    assert {one.outcome for one in asked} == {"done"}
    with open_view(home) as view:
        assert view.trial(1).labels == ("good",)
    journal = home.folder(1).journal_path(2)
    wait_for(lambda: '"blocked":' in journal.read_text())
    assert '"blocked":0' in journal.read_text()  # signals reach a training that somebody has resumed from afar


def test_what_people_change_in_a_workspace_needs_no_other_machine(lab: LabServer, home: Home) -> None:
    """The commands that change records of the own home change those of a workspace, too."""
    workspace = lab.lab.home("vision")
    record(new_trial(workspace), report(1, loss=0.5))

    done = [
        core_sdk("--workspace", "vision", "trial", *words)
        for words in (("rename", "1", "best"), ("note", "1", "words"), ("verdict", "1", "keep"), ("archive", "1"))
    ]

    assert [one.returncode for one in done] == [0, 0, 0, 0], done
    with open_view(workspace) as view:
        row = view.trial(1)
    assert (row.name, row.notes, row.verdict, row.is_archived) == ("best", "words", "keep", True)


def test_a_trial_goes_on_on_another_machine(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """Its records and its checkpoint are fetched, and it continues there, as a trial of its own in the workspace."""
    begin(tmp_path)
    workspace = lab.lab.home("vision")
    wait_for(lambda: workspace.trial_ids() == [1] and workspace.folder(1).running_attempt() is not None)
    client.Tracker(home.root).get_trial(1).pause()
    wait_for(lambda: home.folder(1).running_attempt() is None)
    with WorkspaceConnection(f"{lab.url}/w/vision", token_of(lab, "bob")) as connection:
        Pusher(home, connection, with_checkpoints=True).push([1])
    (last,) = read_history(home.folder(1)).checkpoints
    there = Home(tmp_path / "machine")

    resumed = core_sdk("trial", "resume", "vision/1", "--detach", CORE_SDK_HOME=str(there.root))
    assert resumed.returncode == 0, resumed.stderr
    wait_for(lambda: workspace.trial_ids() == [1, 2] and workspace.folder(2).running_attempt() == 2)
    client.Tracker(there.root).get_trial(1).pause()
    wait_for(lambda: workspace.folder(2).running_attempt() is None)
    shutil.rmtree(there.root / "pushes")

    assert "core-sdk: trial 1 of vision is trial 1 here" in resumed.stderr
    assert f"core-sdk: its command there, in {Path.cwd()}: " in resumed.stderr
    info = there.folder(1).read_run_info(2)
    assert info is not None and info.trial.steps_completed == last.record.steps_completed
    assert workspace.folder(2).read_record().fetched_from == f"{lab.url}/w/vision/#/trials/1"
    assert workspace.folder(1).attempts() == [1]
    assert workspace.folder(2).attempts() == [1, 2]


EXPERIMENT = f"""
name: digits
entrypoint: {sys.executable} train.py
searcher: {{name: grid, metric: loss}}
hyperparameters:
  lr: {{type: categorical, vals: [0.1, 0.2]}}
"""
SEARCHING = """
from core_sdk import core

with core.init() as ctx:
    ctx.train.report_validation_metrics(steps_completed=1, metrics={"loss": ctx.info.trial.hparams["lr"]})
"""


def test_an_experiment_of_this_machine_shows_in_the_workspace(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """The trials run here, and are sent."""
    (tmp_path / "search.yaml").write_text(EXPERIMENT)
    (tmp_path / "train.py").write_text(SEARCHING)
    workspace = lab.lab.home("vision")

    config = str(tmp_path / "search.yaml")
    done = core_sdk("--workspace", "vision", "experiment", "create", config, str(tmp_path), "--local")
    wait_for(lambda: len(workspace.trial_ids()) == 2 and not wanted_pushes(home.root))

    assert done.returncode == 0, done.stderr
    with open_view(workspace) as view:
        rows, (experiment,) = view.trials(), view.experiments()
    assert (experiment.state, experiment.name) == ("COMPLETED", "digits")
    assert workspace.experiment(experiment.experiment_id).read_original_config() == EXPERIMENT.encode()
    assert sorted(row.hparams["lr"] for row in rows) == [0.1, 0.2]
    assert {row.state for row in rows} == {"COMPLETED"}


LONG = f"""
name: digits
entrypoint: {sys.executable} train.py
searcher: {{name: single, metric: loss, max_length: {{batches: 40}}}}
"""
WANTED = """
import time
from pathlib import Path
from core_sdk import core

with core.init() as ctx:
    step = 0
    if (latest := ctx.info.latest_checkpoint) is not None:
        with ctx.checkpoint.restore_path(latest) as path:
            step = int((path / "weights").read_text())
    for operation in ctx.searcher.operations():
        while step < operation.length and not ctx.preempt.should_preempt():
            step += 1
            ctx.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / step})
            while step >= 20 and not Path(%r).exists() and not ctx.preempt.should_preempt():
                time.sleep(0.05)
        with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "weights").write_text(str(step))
        if ctx.preempt.should_preempt():
            break
        ctx.train.report_validation_metrics(steps_completed=step, metrics={"loss": 1 / step})
        operation.report_completed(1 / step)
"""


def begin_search(tmp_path: Path) -> None:
    """Submits an experiment whose trial trains half of its batches, and then waits until `may end` is there."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(WANTED % str(tmp_path / "may end"))
    (tmp_path / "search.yaml").write_text(LONG)
    done = core_sdk("--workspace", "vision", "experiment", "create", str(tmp_path / "search.yaml"), str(code))
    assert done.returncode == 0, done.stderr


def search_state(workspace: Home) -> str:
    found = [workspace.experiment(each).read().search for each in workspace.experiment_ids()]
    return found[0].state if found and found[0] is not None else ""


def test_the_end_of_a_search_arrives_although_its_master_was_killed(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """The state of the search is followed after its last trial has ended, until another master has written it."""
    workspace = lab.lab.home("vision")
    begin_search(tmp_path)
    wait_for(lambda: search_state(workspace) == "ACTIVE")

    os.kill(call(home.root, GetStatus()).pid, signal.SIGKILL)
    (tmp_path / "may end").touch()
    wait_for(lambda: search_state(workspace) == "COMPLETED")
    wait_for(lambda: not wanted_pushes(home.root))
    call(home.root, Down())

    (experiment_id,) = workspace.experiment_ids()
    (trial,) = read_picture(Follower(workspace, experiment_id)).trials
    assert (trial.trial_id, trial.fate) == (1, "trained to the end")


def test_a_trial_of_a_search_goes_on_on_another_machine(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """It is fetched with its code, trains what the search has wanted of it until then, and waits for no more."""
    workspace = lab.lab.home("vision")
    begin_search(tmp_path)
    wait_for(lambda: search_state(workspace) == "ACTIVE")
    core_sdk("experiment", "pause", "1")
    wait_for(lambda: search_state(workspace) == "PAUSED" and not wanted_pushes(home.root))
    with WorkspaceConnection(f"{lab.url}/w/vision", token_of(lab, "bob")) as connection:
        Pusher(home, connection, with_checkpoints=True).push([1])
    call(home.root, Down())
    shutil.rmtree(tmp_path / "code")
    there = Home(tmp_path / "machine")
    (tmp_path / "may end").touch()

    resumed = core_sdk("trial", "resume", "vision/1", CORE_SDK_HOME=str(there.root))

    assert resumed.returncode == 0, resumed.stderr
    with open_view(there) as view:
        row = view.trial(1)
    assert (row.state, row.steps_completed) == ("COMPLETED", 40)
    shutil.rmtree(there.root / "pushes", ignore_errors=True)


def test_an_experiment_is_paused_resumed_and_ended_from_afar(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """The master of the home that has sent it decides, and the workspace shows what came of it."""
    workspace = lab.lab.home("vision")
    begin_search(tmp_path)
    wait_for(lambda: search_state(workspace) == "ACTIVE")
    afar = "--workspace", "vision", "experiment"

    paused = core_sdk(*afar, "pause", "1")
    wait_for(lambda: search_state(workspace) == "PAUSED")
    resumed = core_sdk(*afar, "activate", "1")
    wait_for(lambda: search_state(workspace) == "ACTIVE")
    eve = {"CORE_SDK_SERVER": f"{lab.url}/w/vision", "CORE_SDK_TOKEN": token_of(lab, "eve")}
    of_another = core_sdk("--workspace", eve["CORE_SDK_SERVER"], "experiment", "kill", "1", **eve)
    client.connect("vision").get_experiment(1).cancel()
    wait_for(lambda: search_state(workspace) == "CANCELED")
    again = core_sdk(*afar, "activate", "1")
    call(home.root, Down())

    assert (paused.stdout, paused.returncode) == ("experiment 1: PAUSED\n", 0), paused.stderr
    assert (resumed.stdout, resumed.returncode) == ("experiment 1: ACTIVE\n", 0), resumed.stderr
    assert of_another.returncode != 0 and "was sent by bob, who may do that" in of_another.stderr
    assert again.returncode != 0 and "cannot activate the experiment of trial 1 from here: " in again.stderr
    assert [one.verb for one in ActionRequests(workspace.root).all()] == [
        *(f"experiment {name}" for name in ("pause", "activate", "cancel", "activate"))
    ]


def test_the_trials_of_a_script_are_asked_one_by_one(lab: LabServer, home: Home, tmp_path: Path) -> None:
    """An experiment that no home carries out is paused by its running trials, and does nothing else."""
    begin(tmp_path)
    workspace = lab.lab.home("vision")
    wait_for(lambda: workspace.trial_ids() == [1] and workspace.folder(1).running_attempt() is not None)

    paused = core_sdk("--workspace", "vision", "experiment", "pause", "1")
    refused = core_sdk("--workspace", "vision", "experiment", "activate", "1")
    wait_for(lambda: workspace.folder(1).running_attempt() is None)

    assert paused.returncode == 0 and "asked 1 trials to stop" in paused.stderr
    assert refused.returncode != 0 and "is no search of a home that sends it" in refused.stderr
    assert state_of(home) == "PAUSED"
