"""The server of a lab takes records from those who may write, and answers those who may read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace.workspaces import train

from core_sdk._home import Home
from core_sdk._home.pushes import Login, PushRecord, log_in
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

    assert len(told) == 1 and "core-sdk login" in told[0]
    assert lab.home("vision").trial_ids() == [1]
