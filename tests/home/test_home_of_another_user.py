"""Root trains in the home of a user, from a container or by sudo: what it writes there is the user's."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from interfaces.cli.commands import run_cli
from parts import needs

from core_sdk import core, media
from core_sdk._ground.ownership import give_to_owner_of
from core_sdk._home import Home

USER, GROUP = 65534, 65533

_TRAINING = """
from core_sdk import core

with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    context.train.get_tensorboard_path()
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
        (path / "part").mkdir()
        (path / "part" / "weights").write_text("7")
"""


@pytest.fixture
def users_home(tmp_path: Path) -> Iterator[Home]:
    """A home that is the user's, with nothing in it."""
    home = Home.create(tmp_path / "home")
    for path in [home.root, *home.root.rglob("*")]:
        os.chown(path, USER, GROUP)
    yield home


def not_given(home: Home) -> list[str]:
    """Returns what in the home is not its owner's."""
    return [
        str(path.relative_to(home.root))
        for path in home.root.rglob("*")
        if (path.lstat().st_uid, path.lstat().st_gid) != (USER, GROUP)
    ]


@needs("other users")
def test_what_root_writes_in_a_users_home_is_the_users(users_home: Home, tmp_path: Path) -> None:
    """Journals, checkpoints, output, media, the index, and what commands change belong to the owner of the home."""
    (tmp_path / "train.py").write_text(_TRAINING)
    commands = (
        ["run", "--", sys.executable, "train.py"],
        ["run", "--parent", "1", "--hypothesis", "h", "--", sys.executable, "train.py"],
        ["trial", "label", "1", "good"],
        ["checkpoint", "gc", "--save-trial-latest", "0", "--save-trial-best", "0", "--yes"],
        ["model", "create", "digits"],
    )
    for command in commands:
        done = run_cli(tmp_path, *command, CORE_SDK_HOME=str(users_home.root), CORE_SDK_JOB_ID="7")
        assert done.status == 0, done.errors

    assert not_given(users_home) == []
    for name in ("runs/1/1.log", "runs/1/tensorboard", "runs/1/changes.journal", "runs/2/sources.tar.gz", "tracker.db"):
        assert (users_home.root / name).exists()


@needs("other users")
def test_init_says_to_whom_the_home_belongs(
    users_home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`init()` names the owner of a home that is not this user's, once."""
    monkeypatch.setenv("CORE_SDK_HOME", str(users_home.root))

    with core.init() as context:
        context.train.report_validation_metrics(1, {"text": media.Text("x")})

    (warning,) = (record.getMessage() for record in caplog.records if "belongs to" in record.getMessage())
    assert "nobody" in warning and "root" in warning
    assert not_given(users_home) == []


@needs("other users")
@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_nothing_else_is_given_away(users_home: Home, tmp_path: Path, make: object) -> None:
    """A file that a link in the home leads to stays root's, also if it is a second name of the file."""
    assert callable(make)
    victim = tmp_path / "victim"
    victim.touch()
    make(victim, users_home.root / "made")
    descriptor = os.open(users_home.root / "made", os.O_WRONLY)

    give_to_owner_of(users_home.root, users_home.root / "made", descriptor)

    os.close(descriptor)
    assert victim.stat().st_uid == 0
    assert stat.S_ISREG(victim.lstat().st_mode)
