"""`core-sdk login` and `core-sdk push`, by hand."""

from __future__ import annotations

from pathlib import Path

from interfaces.cli.commands import Cli
from workspace.workspaces import served, train

from core_sdk._home import Home


def test_push_tells_the_numbers_there(home: Home, cli: Cli, tmp_path: Path) -> None:
    """It tells them each time, and that nothing is new the second time."""
    workspace = Home.create(tmp_path / "lab")
    workspace.create_trial()
    train(home, 3)

    with served(workspace) as url:
        first = cli("push", "--to", url)
        second = cli("push", "1", "--to", url)

    assert "trial 1 is trial 2 there" in first.output
    assert "bytes were sent" in first.output
    assert second.output == f"trial 1 is trial 2 there\n1 trial in {url}: nothing is new\n"


def test_a_login_is_kept_for_its_owner_only_and_names_the_workspace(home: Home, cli: Cli, tmp_path: Path) -> None:
    """The only login is the workspace of a push that names none."""
    train(home, 3)
    config = tmp_path / "config"

    with served(Home.create(tmp_path / "vision")) as url:
        logged_in = cli("login", url, stdin="secret-token\n", XDG_CONFIG_HOME=str(config))
        pushed = cli("push", XDG_CONFIG_HOME=str(config))

    kept = config / "core-sdk" / "workspaces.json"
    assert logged_in.output == f"{url} is lab from now on\n"
    assert "secret-token" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert pushed.output.startswith(f"1 trial in {url}: ")


def test_a_login_at_no_server_is_not_kept(home: Home, cli: Cli, tmp_path: Path, free_port: int) -> None:
    """The message names the address."""
    config = tmp_path / "config"

    done = cli("login", f"http://127.0.0.1:{free_port}/w/lab", stdin="secret\n", XDG_CONFIG_HOME=str(config))

    assert done.status == 1
    assert f"the workspace http://127.0.0.1:{free_port}/w/lab cannot be reached" in done.errors
    assert not config.exists() or not any(config.rglob("*.json"))


def test_push_without_a_workspace_says_how_to_name_one(home: Home, cli: Cli, tmp_path: Path) -> None:
    """Nothing is guessed."""
    done = cli("push", XDG_CONFIG_HOME=str(tmp_path / "config"))

    assert done.status == 2
    assert "--to or CORE_SDK_SERVER" in done.errors


def test_follow_sends_until_the_trials_have_ended(home: Home, cli: Cli, tmp_path: Path) -> None:
    """Trials that have ended already are sent once."""
    workspace = Home.create(tmp_path / "lab")
    train(home, 3)

    with served(workspace) as url:
        done = cli("push", "--follow", "--to", url)

    assert "bytes were sent" in done.output
    assert workspace.folder(1).journal_path(1).read_bytes() == home.folder(1).journal_path(1).read_bytes()


def test_commands_show_a_workspace_as_they_show_a_home(home: Home, cli: Cli, tmp_path: Path) -> None:
    """Lists and descriptions are the same; what needs files says so."""
    train(home, 3)
    empty = {"CORE_SDK_HOME": str(tmp_path / "empty")}

    with served(home) as url:
        for command in (
            ["trial", "list"],
            ["trial", "list", "--json"],
            ["trial", "list", "--experiment", "digits", "--where", "loss < 1"],
            ["trial", "metrics", "1"],
            ["experiment", "list"],
        ):
            there, here = cli("--workspace", url, *command, **empty), cli(*command)
            assert (there.status, there.output, there.errors) == (here.status, here.output, here.errors), command
        described = cli("--workspace", url, "trial", "describe", "1", **empty)
        refused = cli("--workspace", url, "trial", "tensorboard", "1", **empty)

    assert (described.status, "digits" in described.output) == (0, True)
    assert refused.status == 1
    assert f"the workspace {url} does not do this: its files lie on its server" in refused.errors
    assert not (tmp_path / "empty").exists()
