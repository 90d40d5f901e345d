"""What a master refuses, and what it survives."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from execution.master.searches import ASHA, TRAIN, await_end, events_of, submit_search, submit_text
from processes import wait_for

from core_sdk._execution.experiments.calling import call, is_master_running, socket_address
from core_sdk._execution.experiments.protocol import GetStatus, Post
from core_sdk._ground.records import AttemptBegun
from core_sdk._home import Home
from core_sdk.errors import MasterError, MasterRefusedError

FULL_DISK = Path(__file__).parent / "full_disk_master.py"


def test_slots_that_this_machine_will_never_have_are_refused(home: Home, tmp_path: Path) -> None:
    """A trial that needs more slots than the machine has is refused and leaves no experiment."""
    Home.create(home.root)
    call(home.root, GetStatus(), options=["--slots=2"])
    text = ASHA.format(max_trials=1, max_concurrent=1, max_time=4) + "resources: {slots_per_trial: 3}\n"

    with pytest.raises(MasterRefusedError, match=r"wants 3 slots .* this machine has 2"):
        submit_text(home, tmp_path, text, TRAIN)

    assert call(home.root, GetStatus()).experiments == ()
    assert home.experiment_ids() == []


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_a_cluster_where_ray_is_missing_is_refused(home: Home, tmp_path: Path) -> None:
    """An experiment on Ray is refused with the command that installs Ray."""
    text = ASHA.format(max_trials=1, max_concurrent=1, max_time=4) + "resources: {engine: ray}\n"

    with pytest.raises(MasterRefusedError, match=r'needs ray: pip install "ray'):
        submit_text(home, tmp_path, text, TRAIN)

    assert home.experiment_ids() == []


def test_a_home_has_one_master(home: Home) -> None:
    """A second master of a home ends at once."""
    pid = call(home.root, GetStatus()).pid

    second = subprocess.run(
        [sys.executable, "-P", "-m", "core_sdk._execution.master"],
        env={**os.environ, "CORE_SDK_HOME": str(home.root)},
        timeout=30,
    )

    assert second.returncode == 0
    assert call(home.root, GetStatus()).pid == pid


def test_only_the_user_can_speak_with_the_master_and_read_what_it_did(home: Home) -> None:
    """The master's socket and log are accessible to the user only."""
    call(home.root, GetStatus())

    mode = (home.root / "master.sock").stat().st_mode

    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert stat.S_IMODE((home.root / "master.log").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("request_line", "words"),
    [
        (b'{"protocol": 99, "version": "9.9", "do": "status"}', "does not understand version 9.9"),
        (b'{"protocol": 1, "version": "0.1.0", "do": "dance"}', "'dance'"),
        (b'{"protocol": 1, "version": "0.1.0", "do": "want", "experiment_id": 7, "state": "PAUSED"}', "experiment 7"),
        (b'{"protocol": 1, "version": "0.1.0", "do": "want"}', "experiment_id"),
        (b"nonsense", ""),
        (b"[]", ""),
        (b"", ""),
    ],
)
def test_a_request_that_makes_no_sense_is_answered(home: Home, request_line: bytes, words: str) -> None:
    """An invalid request is answered with the problem, and the master goes on."""
    pid = call(home.root, GetStatus()).pid

    with socket.socket(socket.AF_UNIX) as connection:
        with socket_address(home.root) as address:
            connection.connect(address)
        connection.sendall(request_line + b"\n")
        answer = json.loads(connection.makefile("rb").readline())

    assert not answer["ok"] and words in answer["error"]
    assert call(home.root, GetStatus()).pid == pid


def test_operations_that_make_no_sense_are_answered(home: Home, tmp_path: Path) -> None:
    """Operations of which the master can make nothing are refused, and the master goes on."""
    config = '{name: own, entrypoint: "python train.py", searcher: {name: custom, metric: m, unit: epochs}}'
    experiment_id = submit_text(home, tmp_path, config, "")
    pid = call(home.root, GetStatus()).pid

    with pytest.raises(MasterError):
        call(home.root, Post(experiment_id=experiment_id, num_events=1, operations=[{"operation": None}]))

    assert call(home.root, GetStatus()).pid == pid


@pytest.mark.parametrize("answer", [b"nonsense", b"[]", b"{}", b'{"ok": true, "pid": "seven"}'])
def test_an_answer_that_makes_no_sense_is_an_error_of_the_master(home: Home, answer: bytes) -> None:
    """An answer that is not one of a master's is told as the master's error."""
    Home.create(home.root)
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as server:
        with socket_address(home.root) as address:
            listening.bind(address)
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.makefile("rb").readline()
                connection.sendall(answer + b"\n")

        serving = server.submit(serve)
        with pytest.raises(MasterError, match="its answer is not understood"):
            call(home.root, GetStatus())
        serving.result()


def test_the_status_is_printed_as_json(home: Home) -> None:
    """`core-sdk master status --json` prints the master's status, and nothing of the protocol."""
    pid = call(Home.create(home.root).root, GetStatus(), options=["--slots=2"]).pid

    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "master", "status", "--json"]
    status = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    assert status["pid"] == pid and status["num_slots"] == 2
    assert set(status) == {"version", "pid", "num_slots", "gpus", "clusters", "experiments"}


@pytest.mark.parametrize("first", [2, 3, 6])
def test_an_experiment_stands_still_while_the_disk_is_full(home: Home, tmp_path: Path, first: int) -> None:
    """While the disk is full an experiment waits, and then every attempt has begun only once."""
    Home.create(home.root)
    with (home.root / "master.log").open("wb") as log:
        master = [sys.executable, str(FULL_DISK), str(first), "12", "--stay"]
        subprocess.run(master, stderr=log, check=True, timeout=60)

    experiment_id = submit_search(home, tmp_path, max_trials=2)
    wait_for(lambda: "No space left on device" in (home.root / "master.log").read_text())
    search = await_end(home, experiment_id)

    events = events_of(home, experiment_id)
    begun = [(event.request_id, event.attempt) for event in events if isinstance(event, AttemptBegun)]
    assert search.state == "COMPLETED"
    assert len(begun) == len(set(begun)) == len(home.trial_ids()) == 2


def test_a_home_that_cannot_be_written_has_no_master(home: Home) -> None:
    """In a home that cannot be written, a request raises an error."""
    home.root.parent.mkdir(exist_ok=True)
    home.root.write_text("not a directory")

    with pytest.raises((MasterError, FileExistsError)):
        call(home.root, GetStatus())


def test_an_idle_master_ends(home: Home) -> None:
    """A master that was started for one request ends when it is idle."""
    call(home.root, GetStatus(), options=["--idle=1"])

    wait_for(lambda: not is_master_running(home.root))
