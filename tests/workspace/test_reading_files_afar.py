"""Output and files of checkpoints of a workspace are read from anywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from home.journals import new_trial, record, report
from interfaces.cli.commands import WarmCli
from interfaces.lab.lab_server import LabServer, new_lab, serving_lab
from workspace.test_checkpoints import train

from core_sdk import client
from core_sdk._ground.alive import AliveLock
from core_sdk._home import Home, TrialFolder
from core_sdk._home.pushes import Login, log_in
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.pushing import Pusher
from core_sdk.errors import WorkspaceError


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabServer]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lab, token = new_lab(tmp_path / "lab")
    with serving_lab(lab, token) as server:
        log_in(Login(name="vision", url=f"{server.url}/w/vision", token=token))
        yield server


@pytest.fixture
def trial(lab: LabServer) -> TrialFolder:
    """A trial of the workspace with two attempts, of which the second was started by a launcher."""
    folder = new_trial(lab.lab.home("vision"))
    for attempt, text in ((1, "one\ntwo\n"), (2, "launcher\n[rank=0] ERROR three\n[rank=1] four\n")):
        record(folder, report(1, loss=0.5), attempt=attempt)
        (folder.path / f"{attempt}.log").write_text(text)
    return folder


def test_the_output_is_that_of_the_workspace(trial: TrialFolder, warm_cli: WarmCli, tmp_path: Path) -> None:
    """By the command with its options, and by the client."""

    def shown(*options: str) -> list[str]:
        done = warm_cli.run(tmp_path, "--workspace", "vision", "trial", "logs", "1", *options)
        assert done.status == 0, done.errors
        return done.output.splitlines()

    everything = ["one", "two", "launcher", "[rank=0] ERROR three", "[rank=1] four"]
    assert shown() == everything
    assert shown("--attempt", "1") == ["one", "two"]
    assert shown("--rank", "1") == ["four"]
    assert shown("--tail", "1") == ["[rank=1] four"]
    assert shown("--head", "3") == everything[:3]
    assert shown("--tail", "1", "--level", "error") == ["[rank=0] ERROR three"]
    logs = client.connect("vision").get_trial(1).logs
    assert [*logs()] == [f"{line}\n" for line in everything]
    assert [*logs(tail=2, search_text="o")] == ["[rank=0] ERROR three\n", "[rank=1] four\n"]


def test_the_output_is_followed_until_the_attempt_ends(trial: TrialFolder) -> None:
    """Lines that are written meanwhile come, and a line that is still written comes once and whole."""
    lock = AliveLock(trial.supervised_path(2))
    heard: list[str] = []
    thread = threading.Thread(
        target=lambda: heard.extend(client.connect("vision").get_trial(1).logs(follow=True)), daemon=True
    )
    seen: list[str] = []
    lines = iter(client.connect("vision").get_trial(1).logs(follow=True))
    seen += [next(lines) for _ in range(5)]
    with (trial.path / "2.log").open("a") as log:
        thread.start()
        log.write("fi")
        log.flush()
        log.write("ve\nsix")
        log.flush()
        seen.append(next(lines))
        lock.release()
        seen += lines
    thread.join()

    assert seen[-2:] == ["five\n", "six\n"]
    assert heard == seen


def test_a_checkpoint_that_was_sent_along_is_downloaded(
    lab: LabServer, home: Home, warm_cli: WarmCli, tmp_path: Path
) -> None:
    """Its files are those of the home; of one that was not sent along, there are none."""
    first = train()
    url, home = f"{lab.url}/w/vision", Home(home.root)
    with WorkspaceConnection(url, lab.token) as connection:
        Pusher(home, connection, with_checkpoints=True).push([1])
        second = train()
        Pusher(home, connection).push([2])

    done = warm_cli.run(tmp_path, "--workspace", "vision", "checkpoint", "download", first, "files")

    assert (done.status, done.output) == (0, "files\n")
    for name in ("model/weights.bin", "empty"):
        assert (tmp_path / "files" / name).read_bytes() == (home.checkpoints / first / name).read_bytes()
    with pytest.raises(WorkspaceError, match="there is no checkpoint"):
        client.connect("vision").get_checkpoint(second).download(tmp_path / "others")
