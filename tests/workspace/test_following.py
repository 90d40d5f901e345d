"""What is recorded with a workspace arrives there in the background, whatever is killed or away meanwhile."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from execution.master.searches import await_end, submit_text
from interfaces.cli.commands import WarmCli
from processes import Script, wait_for
from workspace.workspaces import ServerProcess, served

from core_sdk import core
from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.following import Follower
from core_sdk._execution.experiments.picture import read_picture
from core_sdk._execution.experiments.protocol import Down
from core_sdk._ground.alive import is_alive
from core_sdk._home import Home
from core_sdk._home.pushes import pusher_lock, pusher_log, start_pusher, wanted_pushes
from core_sdk.errors import UnknownWorkspaceError

TRAINING = """
    import sys, time
    from core_sdk import core

    with core.init(name="digits", workspace=sys.argv[1]) as ctx:
        print("begun", flush=True)
        for step in range(int(sys.argv[2])):
            ctx.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / (step + 1)})
            time.sleep(0.001)
"""


@pytest.fixture
def home(home: Home) -> Iterator[Home]:
    yield Home.create(home.root)
    shutil.rmtree(home.root / "pushes", ignore_errors=True)  # which ends the pusher
    wait_for(lambda: not is_alive(pusher_lock(home.root)))


@pytest.fixture
def workspace(tmp_path: Path) -> Home:
    return Home.create(tmp_path / "lab")


def is_pushed(home: Home) -> bool:
    return not wanted_pushes(home.root)


def assert_same(home: Home, workspace: Home, numbers: dict[int, int]) -> None:
    """Holds that each journal is there byte by byte."""
    for ours, theirs in numbers.items():
        for path in home.folder(ours).path.glob("*.journal"):
            assert (workspace.folder(theirs).path / path.name).read_bytes() == path.read_bytes()


def test_a_training_with_a_workspace_arrives_there(
    home: Home, workspace: Home, start_script: Callable[..., Script]
) -> None:
    """The script ends as ever, and the pusher, which it has started, sends all and ends."""
    with served(workspace) as url:
        assert start_script(TRAINING, url, "50").wait()[0] == 0
        wait_for(lambda: is_pushed(home))

    assert_same(home, workspace, {1: 1})
    assert b'"ended"' in workspace.folder(1).journal_path(1).read_bytes()


def test_a_server_that_is_away_gets_all_of_it_later(
    home: Home, workspace: Home, free_port: int, start_script: Callable[..., Script]
) -> None:
    """Nothing listens during the training. Once the server is there, everything arrives once."""
    url = f"http://127.0.0.1:{free_port}/w/lab"
    assert start_script(TRAINING, url, "50").wait()[0] == 0
    assert not is_pushed(home)

    with served(workspace, free_port):
        wait_for(lambda: is_pushed(home))

    assert_same(home, workspace, {1: 1})
    assert workspace.trial_ids() == [1]


def test_what_goes_wrong_in_the_background_is_shown(
    home: Home, free_port: int, start_script: Callable[..., Script], warm_cli: WarmCli, tmp_path: Path
) -> None:
    """`push --status` names the trial, the problem and the pusher's log."""
    url = f"http://127.0.0.1:{free_port}/w/lab"
    assert start_script(TRAINING, url, "5").wait()[0] == 0
    wait_for(lambda: pusher_log(home.root).exists() and "cannot be reached" in pusher_log(home.root).read_text())

    shown = warm_cli.run(tmp_path, "push", "--status").output

    assert f"trial 1 is on its way to {url}" in shown
    assert "the pusher runs" in shown
    assert "cannot be reached" in shown and str(pusher_log(home.root)) in shown


def test_the_name_of_no_login_is_refused(home: Home) -> None:
    """A mistyped workspace is told before the training begins, and nothing is recorded."""
    with pytest.raises(UnknownWorkspaceError, match="labb is not known"):
        core.init(workspace="labb")

    assert home.trial_ids() == []


def pushers_of(home: Home) -> list[psutil.Process]:
    command = ["-m", "core_sdk._execution.steering", str(home.root.absolute())]
    return [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [])[-3:] == command]


def await_pushed(home: Home, server: ServerProcess) -> None:
    """Starts both sides again, and waits until all is there."""
    server.start()
    start_pusher(home.root)
    try:
        wait_for(lambda: is_pushed(home))
    finally:
        server.kill()


def killed_at_random(
    home: Home, workspace: Home, port: int, start_script: Callable[..., Script], num_kills: int
) -> None:
    """Trains while the server and the pusher are killed at random moments, and holds that all is there once."""
    server = ServerProcess(workspace, port)
    chance = random.Random(num_kills)
    trainings = [start_script(TRAINING, server.url, str(num_kills * 400), name=f"train{n}.py") for n in range(3)]
    for training in trainings:
        training.read_until("begun")
    for kill in range(num_kills):
        server.start()
        start_pusher(home.root)
        time.sleep(chance.uniform(0.0, 2.5))  # the moment of the kill
        if kill % 2:
            server.kill()
        for pusher in pushers_of(home):
            pusher.kill()
        server.kill()
    for training in trainings:
        assert training.wait()[0] == 0
    await_pushed(home, server)
    numbers = {}
    for number in workspace.trial_ids():
        record = workspace.folder(number).read_record()
        numbers[record.first_id] = number
    assert sorted(numbers) == [1, 2, 3]
    assert len(workspace.trial_ids()) == 3
    assert_same(home, workspace, numbers)


def test_kills_of_both_sides_lose_and_double_nothing(
    home: Home, workspace: Home, free_port: int, start_script: Callable[..., Script]
) -> None:
    """Server and pusher are killed at random moments under load."""
    killed_at_random(home, workspace, free_port, start_script, 6)


@pytest.mark.timeout(600)
def test_a_hundred_kills_lose_and_double_nothing(
    home: Home, workspace: Home, free_port: int, start_script: Callable[..., Script]
) -> None:
    """As above, a hundred times."""
    killed_at_random(home, workspace, free_port, start_script, 100)


SEARCH = f"""
name: digits
entrypoint: {sys.executable} train.py
hyperparameters: {{x: {{type: double, minval: 0, maxval: 1}}}}
searcher: {{name: random, metric: loss, max_trials: 6, max_concurrent_trials: 2}}
"""
TRIAL = """
import time
from core_sdk import core

with core.init() as ctx:
    for step in range(20):
        ctx.train.report_validation_metrics(steps_completed=step, metrics={"loss": ctx.info.trial.hparams["x"]})
        time.sleep(0.1)
"""


def test_kills_of_both_sides_spoil_no_search(
    home: Home, workspace: Home, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events arrive byte by byte and once, and what they say of the trials is what the home's say."""
    server = ServerProcess(workspace, free_port)
    monkeypatch.setenv("CORE_SDK_SERVER", server.url)
    experiment_id = submit_text(home, tmp_path, SEARCH, TRIAL)
    chance = random.Random(8)
    for _ in range(8):
        server.start()
        start_pusher(home.root)
        time.sleep(chance.uniform(0.0, 1.5))  # the moment of the kill
        for pusher in pushers_of(home):
            pusher.kill()
        server.kill()
    assert await_end(home, experiment_id).state == "COMPLETED"
    call(home.root, Down())
    await_pushed(home, server)

    (number,) = workspace.experiment_ids()
    here, there = home.experiment(experiment_id), workspace.experiment(number)
    assert there.events_path.read_bytes() == here.events_path.read_bytes()
    search = here.read().search
    assert search is not None and there.read().search == msgspec.structs.replace(search, num_events=0)
    ours, theirs = (read_picture(Follower(one, each)) for one, each in ((home, experiment_id), (workspace, number)))
    local = there.local_trials()
    assert [each.trial_id for each in theirs.trials] == [local(each.trial_id) for each in ours.trials]
    assert sorted(each.trial_id for each in theirs.trials) == workspace.trial_ids()
    assert_same(home, workspace, {each.trial_id: local(each.trial_id) for each in ours.trials})
