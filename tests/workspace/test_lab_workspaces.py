"""The server of a lab takes records from those who may write, and answers those who may read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from analysis.exchange.records import imported, unpacked
from home.journals import new_trial, record, report
from processes import Script, wait_for
from workspace.workspaces import train

from core_sdk import client
from core_sdk._home import Home, open_view
from core_sdk._home.pushes import Login, PushRecord, log_in, wanted_pushes
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._workspace.asking import open_workspace
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.following import Following
from core_sdk._workspace.pushing import Pusher
from core_sdk.errors import WorkspaceError, WorkspaceRefusedError

DAY_S = 86400.0


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A lab with the workspace `vision`, and somebody of each role in it."""
    lab = Lab.create(tmp_path / "lab")
    lab.add_workspace("vision")
    lab.add_workspace("speech")
    lab.people.set_role("vision", "reader", "reader")
    lab.people.set_role("vision", "writer", "writer")
    lab.people.set_role("speech", "stranger", "owner")
    return lab


@pytest.fixture
def address(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """The address of the lab's server, `core-sdk server up`."""
    command = ["server", "up", str(tmp_path / "lab"), "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(
        [sys.executable, "-m", "core_sdk._interfaces.cli", *command], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    yield server.stdout.readline().strip().rstrip("/")
    server.terminate()
    server.communicate()


def token(lab: Lab, person: str, workspace: str = "vision") -> str:
    return lab.people.issue("token", person, DAY_S, workspace=workspace)[0]


def test_a_writer_pushes_and_a_reader_asks(
    home: Home, lab: Lab, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader sees the trial of the writer, by the name of a login."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    train(home, 3)
    url = f"{address}/w/vision"

    with WorkspaceConnection(url, token(lab, "writer")) as connection:
        Pusher(home, connection).push([1])
    log_in(Login(name="vision", url=url, token=token(lab, "reader")))
    with open_workspace("vision") as view:
        row = view.trial(1)

    assert (row.experiment_name, row.state) == ("digits", "COMPLETED")
    there = lab.home("vision").folder(1)
    assert there.journal_path(1).read_bytes() == home.folder(1).journal_path(1).read_bytes()


def test_nobody_else_pushes(home: Home, lab: Lab, address: str) -> None:
    """Readers, strangers and whoever has no token are refused, and nothing arrives."""
    train(home, 3)
    url = f"{address}/w/vision"

    for secret in (token(lab, "reader"), "", "lab_nonsense"):
        with WorkspaceConnection(url, secret) as connection, pytest.raises(WorkspaceRefusedError):
            Pusher(home, connection).push([1])
    of_stranger = WorkspaceConnection(url, token(lab, "stranger", "speech"))
    with of_stranger as connection, pytest.raises(WorkspaceError, match="no such workspace"):
        Pusher(home, connection).push([1])

    assert lab.home("vision").trial_ids() == []


def test_a_pusher_goes_on_once_somebody_has_logged_in_again(
    home: Home, lab: Lab, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token was revoked. It is refused until there is another one, and then sends all."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    train(home, 3)
    url = f"{address}/w/vision"
    log_in(Login(name="vision", url=url, token="lab_revoked"))
    waiting = {1: PushRecord(trial_id=1, workspace=url)}
    told: list[str] = []

    def tell(problem: str) -> None:
        told.append(problem)
        log_in(Login(name="vision", url=url, token=token(lab, "writer")))

    Following(home, every_s=0.01).run(lambda: list(waiting.values()), lambda record: waiting.pop(record.trial_id), tell)

    refused, accepted = told
    assert "core-sdk login" in refused and "takes records again" in accepted
    assert lab.home("vision").trial_ids() == [1]


def test_a_login_to_a_lab_lets_the_client_ask_a_workspace(
    home: Home, lab: Lab, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A script that logs in to a master reads a workspace if that is the address, until it logs out."""
    url = f"{address}/w/vision"
    with WorkspaceConnection(url, token(lab, "writer")) as connection:
        Pusher(home, connection).push([train(home, 3).trial_id])
    monkeypatch.setenv("CORE_SDK_SERVER", url)
    monkeypatch.setenv("CORE_SDK_TOKEN", token(lab, "writer"))

    client.login(master=url, user="ada", password="secret")
    there = [trial.id for trial in client.list_trials()], client.get_trial(1).metrics_frame("training")
    of_object = client.Determined(master=f"{url}/").get_trial(1).name
    with pytest.raises(WorkspaceError, match="its files lie on its server"):
        client.list_models()
    client.logout()
    here = client.get_trial(1).metrics_frame("training")

    assert there == ([1], here)
    assert of_object == client.get_trial(1).name
    assert "user, password" in caplog.text
    assert "secret" not in caplog.text


WITH_ITS_OWN_NAMES = """
    import core_sdk.compat.wandb as wandb

    run = wandb.init(project="gpt", name="first", entity="another-team", config={"lr": 0.1}, tags=["small"])
    for step in range(6):
        wandb.log({"train/loss": 1 / (step + 1)})
    wandb.finish()
"""


def test_a_script_with_the_names_of_wandb_records_to_a_lab_by_the_environment(
    home: Home, lab: Lab, address: str, start_script: Callable[..., Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its source nor wandb's variables say where: the server and the token do."""
    monkeypatch.setenv("CORE_SDK_SERVER", f"{address}/w/vision")
    monkeypatch.setenv("CORE_SDK_TOKEN", token(lab, "writer"))
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_ENTITY", "another-team")

    assert start_script(WITH_ITS_OWN_NAMES).wait()[0] == 0
    wait_for(lambda: not wanted_pushes(home.root))

    with open_view(lab.home("vision")) as view:
        row = view.trial("first")
        (series,) = view.series(row.trial_id)
    assert (row.experiment_name, row.hparams["lr"], row.state) == ("gpt", 0.1, "COMPLETED")
    assert (series.group, series.name, series.count) == ("training", "loss", 6)


@pytest.mark.parametrize(("tracker", "num_runs"), [("mlruns", 2), ("wandb", 2)])
def test_imported_runs_are_pushed_too(
    home: Home, lab: Lab, address: str, tmp_path: Path, tracker: str, num_runs: int
) -> None:
    """Runs of another tracker come into a workspace with their curves and configurations, and nothing twice."""
    imported(Home.create(home.root), unpacked(tracker, tmp_path))
    with WorkspaceConnection(f"{address}/w/vision", token(lab, "writer")) as connection:
        for _ in range(2):
            Pusher(home, connection).push(home.trial_ids())

    workspace = lab.home("vision")
    with open_view(home) as ours, open_view(workspace) as theirs:
        assert len(theirs.trials()) == len(ours.trials()) == num_runs
        for row in ours.trials():
            there = theirs.trial(workspace_number(workspace, row.trial_id))
            assert (there.name, there.experiment_name, there.hparams) == (row.name, row.experiment_name, row.hparams)
            assert list(map(repr, theirs.series(there.trial_id))) == list(map(repr, ours.series(row.trial_id)))


def test_the_homes_of_several_nodes_come_together(lab: Lab, address: str, tmp_path: Path) -> None:
    """Nodes without a shared disk push at once: each trial arrives whole under a number of its own."""
    homes = [Home.create(tmp_path / f"node{number}") for number in range(4)]
    for node, home in enumerate(homes):
        for number in range(3):
            folder = new_trial(home, "sweep", node=node, number=number)
            trial = folder.read_record()
            trial.seed = 10 * node + number
            folder.write_record(trial)
            record(folder, *(report(step, loss=1.0) for step in range(50)))
    secret = token(lab, "writer")

    def push(home: Home) -> None:
        with WorkspaceConnection(f"{address}/w/vision", secret) as connection:
            Pusher(home, connection).push(home.trial_ids())

    with ThreadPoolExecutor(len(homes)) as nodes:
        list(nodes.map(push, homes))

    with open_view(lab.home("vision")) as view:
        found = {
            (row.hparams["node"], row.hparams["number"]): view.series(row.trial_id)[0].count for row in view.trials()
        }
        assert len(view.trials()) == len(view.experiments()) * 12 == 12
    assert found == {(node, number): 50 for node in range(4) for number in range(3)}


def workspace_number(workspace: Home, trial_id: int) -> int:
    return next(one for one in workspace.trial_ids() if workspace.folder(one).read_record().first_id == trial_id)
