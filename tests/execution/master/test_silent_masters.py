"""A master that does not answer, since somebody has suspended it: commands say so, and look into the journals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from execution.master.searches import submit_text
from processes import wait_for

from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.protocol import GetStatus
from core_sdk._home import Home

CONFIG = """
entrypoint: sleep 1000
searcher: {name: single, metric: loss}
resources: {slots_per_trial: 1}
"""
WAITING = [
    "experiment pause 1",
    "experiment activate 1",
    "experiment cancel 1",
    "experiment set priority 1 7",
    "experiment fork 1 --paused",
    "experiment create config.yaml --paused",
    "trial kill 1",
]


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def start(home: Home, tmp_path: Path, command: str) -> subprocess.Popen[str]:
    with (tmp_path / f"{command}.txt").open("w") as errors:
        return subprocess.Popen(
            [str(Path(sys.executable).parent / "core-sdk"), *command.split()],
            env=os.environ | {"CORE_SDK_HOME": str(home.root), "COLUMNS": "120"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def errors_of(tmp_path: Path, command: str) -> str:
    return (tmp_path / f"{command}.txt").read_text()


def test_commands_say_whom_they_wait_for(home: Home, tmp_path: Path) -> None:
    """Commands name a master that does not answer; those that only look use the journals, others wait."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    experiment_id = submit_text(home, tmp_path, CONFIG, "")
    wait_for(lambda: bool(home.trial_ids()) and home.trial(1).log_path(1).exists())
    pid = call(home.root, GetStatus()).pid
    looking = ["queue list", "slot list --json", "master status"]

    with suspended(pid):
        looks = {command: start(home, tmp_path, command) for command in looking}
        shown = {command: process.communicate(timeout=60)[0] for command, process in looks.items()}
        waits = {command: start(home, tmp_path, command) for command in WAITING}
        wait_for(lambda: all("has not answered" in errors_of(tmp_path, command) for command in WAITING))
        are_waiting = [process.poll() is None for process in waits.values()]
    for process in waits.values():
        process.communicate(timeout=60)
    statuses = {command: process.returncode for command, process in waits.items()}

    for command in (*looking, *WAITING):
        assert f"process {pid} (" in errors_of(tmp_path, command)
        assert re.search(r"has not answered for \d+ s, and is suspended. `kill -CONT", errors_of(tmp_path, command))
    assert [looks[command].returncode for command in looking] == [0, 0, 1]
    assert "ACTIVE" in shown["queue list"] and "its master does not answer" in shown["queue list"]
    assert (experiment_id, 1) in [(slot["experiment_id"], slot["trial_id"]) for slot in json.loads(shown[looking[1]])]
    assert all(are_waiting)
    assert statuses["experiment create config.yaml --paused"] == statuses["experiment fork 1 --paused"] == 0


def test_a_master_is_ended_as_soon_as_it_answers(home: Home, tmp_path: Path) -> None:
    """`master down` waits for a suspended master and ends it when it answers."""
    home = Home.create(home.root)
    pid = call(home.root, GetStatus()).pid

    with suspended(pid):
        down = start(home, tmp_path, "master down")
        wait_for(lambda: "has not answered" in errors_of(tmp_path, "master down"))
    output, _ = down.communicate(timeout=60)

    assert (down.returncode, output) == (0, "the master has ended\n")
