"""`--homes`: commands over the homes of several people."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from home.journals import new_trial, record, report, stored
from interfaces.cli.commands import Cli, StartCli, WriteScript
from interfaces.cli.test_cli_experiments import CONFIG, TRAIN
from masters import running_master
from parts import needs
from processes import wait_for

from core_sdk._ground.records import MANIFEST_NAME, CheckpointStored
from core_sdk._home import Home
from core_sdk.client import Tracker, Trial

_STORES = """
    import time
    from core_sdk import core

    with core.init(name="digits") as context:
        if context.info.latest_checkpoint is None:
            context.train.report_validation_metrics(1, {"accuracy": 0.5})
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
                (path / "weights").write_text("7")
            print("has stored", flush=True)
            while True:
                time.sleep(0.01)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a lab. It has a trial in the home of ada; that of bob, where commands run, is missing yet."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "lab" / "bob"))
    record(new_trial(Home(tmp_path / "lab" / "ada"), lr=0.1), report(1, loss=0.5))
    return tmp_path / "lab"


def test_a_training_of_ones_own_is_steered_among_others(
    lab: Path, cli: Cli, start_cli: StartCli, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill, resume, notes and labels reach the trial by the number that it has among all of them."""
    homes = ["--homes", str(lab / "*")]
    start_cli("run", "--", sys.executable, str(write_script(_STORES)))
    own = Tracker(lab / "bob")
    wait_for(lambda: bool(own.list_checkpoints()))
    monkeypatch.setenv("CORE_SDK_HOME", str(lab.parent / "elsewhere"))
    assert cli("trial", "list", "-q", *homes).output == "1\n2\n"

    killed = cli("trial", "kill", "2", *homes)
    resumed = cli("trial", "resume", "2", *homes)
    noted = cli("trial", "note", "2", "as the others", *homes)
    labelled = cli("trial", "label", "2", "paper", *homes)
    again = cli("trial", "kill", "2", *homes)
    continued = cli("trial", "continue", "2", *homes)

    assert (killed.status, killed.errors) == (0, "core-sdk: killed trial 2\n")
    assert resumed.status == 0, resumed.errors
    assert f"core-sdk: trial 2 is trial 1 of the home {lab}/bob\n" in resumed.errors
    assert (noted.output, labelled.output) == ("as the others\n", "labels of trial 2: paper\n")
    assert again.status == 1
    assert f"`CORE_SDK_HOME={lab}/bob core-sdk trial describe 1`" in again.errors
    assert continued.status == 0, continued.errors
    assert own.get_trial(2).continued_from is not None
    trial = own.get_trial(1)
    assert (trial.num_attempts, trial.state.name, trial.labels) == (2, "COMPLETED", {"paper"})
    assert Tracker(lab / "ada").get_trial(1).labels == set()


@needs("other users")
def test_a_training_of_somebody_else_is_not_resumed(lab: Path, cli: Cli) -> None:
    """`trial resume` starts nothing in the home of another user, whoever may write there."""
    os.chown(lab / "ada", 61001, -1)
    homes = ["--homes", str(lab / "*")]
    assert cli("trial", "list", "-q", *homes).output == "1\n"

    refused = cli("trial", "resume", "1", *homes)

    assert refused.status == 1
    assert f"trial 1 lies in the home {lab}/ada, which is 61001's" in refused.errors
    assert Tracker(lab / "ada").get_trial(1).num_attempts == 1


def test_commands_that_read_take_several_homes(lab: Path, cli: Cli, tmp_path: Path) -> None:
    """Experiments, checkpoints and reports are those of all homes, by the numbers that these have together."""
    own = Home(lab / "bob")
    record(new_trial(own, lr=0.2), report(1, loss=0.25), *_stored(own))
    homes = ["--homes", str(lab / "*")]

    listed = json.loads(cli("experiment", "list", "--json", *homes).output)
    described = json.loads(cli("experiment", "describe", "2", "--json", *homes).output)
    found = json.loads(cli("checkpoint", "list", "--json", *homes).output)
    asked = cli("sql", "select trial_id, home from trials order by trial_id", "--csv", *homes)

    assert [(one["experiment_id"], one["home"]) for one in listed] == [(1, f"{lab}/ada"), (2, f"{lab}/bob")]
    assert [one["trial_id"] for one in described["trials"]] == [2]
    assert [(one["storage_id"], one["trial_id"]) for one in found] == [("stored", 2)]
    assert asked.output.splitlines()[1:] == [f"1,{lab}/ada", f"2,{lab}/bob"]
    for command in (
        ["experiment", "trials", "2"],
        ["experiment", "time", "2"],
        ["experiment", "logs", "2"],
        ["checkpoint", "describe", "stored"],
        ["trial", "evidence", "2"],
        ["trial", "tree"],
        ["report", "2", "-o", str(tmp_path / "report.html")],
    ):
        done = cli(*command, *homes)
        assert (done.status, done.errors) == (0, ""), command
    assert "trial 2" in (tmp_path / "report.html").read_text().lower()


def test_checkpoints_of_several_homes_are_downloaded(
    lab: Path, cli: Cli, write_script: WriteScript, tmp_path: Path
) -> None:
    """`trial download`, `experiment download` and `checkpoint download` copy the files, whoever has them."""
    script = write_script(_STORES.replace("while True:", "while False:"))
    assert cli("run", "--", sys.executable, str(script), CORE_SDK_HOME=str(lab / "ada")).status == 0
    homes = ["--homes", str(lab / "*")]
    (found,) = json.loads(cli("checkpoint", "list", "--json", *homes).output)

    for number, command in enumerate(
        (["trial", "download", "2"], ["checkpoint", "download", found["storage_id"]], ["checkpoint", "verify", "--all"])
    ):
        to = [] if "verify" in command else ["-o", str(tmp_path / str(number))]
        assert cli(*command, *to, *homes).status == 0
        assert not to or (tmp_path / str(number) / "weights").read_text() == "7"


def test_a_search_of_ones_own_is_steered_through_its_master(lab: Path, cli: Cli, tmp_path: Path) -> None:
    """`experiment` and `trial` commands reach the master of the home that carries out the experiment."""
    homes = ["--homes", str(lab / "*")]
    elsewhere = str(tmp_path / "elsewhere")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAIN)
    (tmp_path / "config.yaml").write_text(CONFIG + "data: {endless: true}\n")
    with running_master(Home.create(lab / "bob")):
        created = cli("experiment", "create", str(tmp_path / "config.yaml"), str(tmp_path / "code"))
        assert created.status == 0, created.errors
        wait_for(lambda: all(one.steps_completed == 1 for one in _trials_of(lab / "bob", 2)))
        assert cli("experiment", "list", *homes, CORE_SDK_HOME=elsewhere).status == 0

        config = cli("experiment", "config", "2", *homes, CORE_SDK_HOME=elsewhere)
        best = json.loads(cli("experiment", "best", "2", "--json", *homes, CORE_SDK_HOME=elsewhere).output)
        refused = cli("trial", "pause", "2", *homes, CORE_SDK_HOME=elsewhere)
        killed = cli("trial", "kill", "2", *homes, CORE_SDK_HOME=elsewhere)
        ended = cli("experiment", "kill", "2", *homes, CORE_SDK_HOME=elsewhere)
        wait_for(lambda: Tracker(lab / "bob").get_experiment(1).state.name == "CANCELED")

    assert "name: digits" in config.output
    assert (best["home"], best["experiment_id"]) == (f"{lab}/bob", 2)
    assert refused.status == 1 and "experiment 1 is ACTIVE" in refused.errors
    assert (killed.status, ended.status) == (0, 0)
    assert ended.output.startswith("experiment 2: ")


def _trials_of(home: Path, num_trials: int) -> list[Trial]:
    """Returns the trials of a home once there are so many."""
    wait_for(lambda: len(Tracker(home).list_trials()) == num_trials)
    return Tracker(home).list_trials()


def _stored(home: Home) -> list[CheckpointStored]:
    directory = home.checkpoints / "stored"
    directory.mkdir(parents=True)
    (directory / MANIFEST_NAME).write_text("{}")
    return [stored("stored", 1, storage="home:checkpoints")]
