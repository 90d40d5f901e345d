"""Experiments that run inside the command, without a master in the background."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from interfaces.cli.commands import StartCli, run_cli
from interfaces.cli.test_cli_experiments import CONFIG, TRAIN, read_until_line_begins
from masters import running_master

from core_sdk._execution.experiments.calling import is_master_running
from core_sdk._home import Home


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "train.py").write_text(TRAIN)
    (tmp_path / "search.yaml").write_text(CONFIG)


def test_a_local_experiment_runs_inside_the_command(tmp_path: Path, home: Home) -> None:
    """--local runs the experiment without leaving a master process."""
    ended = run_cli(tmp_path, "experiment", "create", "search.yaml", "model", "--local", "--slots", "2")

    assert ended.status == 0, ended.errors
    assert ended.output.endswith("experiment 1: COMPLETED\n")
    assert not is_master_running(home.root)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_pauses_a_local_experiment(start_cli: StartCli, home: Home, number: signal.Signals) -> None:
    """A signal pauses a local experiment, whose trials save checkpoints, and the command exits with 75."""
    command = start_cli("e", "create", "search.yaml", "model", "--local", "--config", "data.endless=true")
    read_until_line_begins(command, "trial 1: loss")

    command.process.send_signal(number)
    status, _, errors = command.wait()

    search = home.experiment(1).read().search
    assert (status, search and search.state, search and search.num_running) == (75, "PAUSED", 0), errors
    assert len(list(home.checkpoints.glob("*/weights.bin"))) >= 1


def test_a_master_that_runs_carries_out_local_experiments(tmp_path: Path, home: Home) -> None:
    """A home has one master: --local and its test use the one that runs, and ask for no slots of their own."""
    create = ("experiment", "create", "search.yaml", "model", "--local")
    with running_master(Home.create(home.root)):
        test = run_cli(tmp_path, *create, "--test", "--config", "data.endless=true")
        left = home.experiment_ids()
        ended = run_cli(tmp_path, *create)
        refused = run_cli(tmp_path, *create, "--slots", "2")
        up = run_cli(tmp_path, "master", "up")
        has_master = is_master_running(home.root)

    assert (test.status, left) == (0, []), test.errors
    assert ended.status == 0, ended.errors
    assert ended.output.endswith("COMPLETED\n")
    assert (refused.status, up.status, has_master) == (2, 2, True)
    assert "leave out --slots" in refused.errors


def test_a_local_test_leaves_nothing_behind(tmp_path: Path, home: Home) -> None:
    """A local test leaves neither a master nor a trial, and sets CORE_SDK_TEST_MODE."""
    script = TRAIN.replace("import time", "import os, time\nassert os.environ['CORE_SDK_TEST_MODE'] == '1'")
    (tmp_path / "model" / "train.py").write_text(script)
    options = ("--local", "--test", "--slots", "2", "--config", "data.endless=true")

    ended = run_cli(tmp_path, "experiment", "create", "search.yaml", "model", *options)

    assert ended.status == 0, ended.errors
    assert "ok: it has stopped when it was asked to, with a checkpoint at step 1" in ended.output
    assert not is_master_running(home.root)
    assert home.experiment_ids() == home.trial_ids() == []
