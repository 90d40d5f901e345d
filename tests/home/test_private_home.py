"""Everything lies inside the home, whatever it is called, and nobody else may read it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from home.journals import new_trial, record, report
from interfaces.cli.commands import run_cli

from core_sdk._home import Home
from core_sdk._home.index import Index

_TRAINING = """
from core_sdk import core

with core.init(labels=["a"]) as context:
    print("begun")
    context.train.get_tensorboard_path()
    for step in range(1, 4):
        context.train.report_training_metrics(step, {"loss": 1 / step})
        context.train.report_validation_metrics(step, {"accuracy": 0.5})
        with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
            (path / "weights").write_text("7")
"""


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Sets a umask that lets everybody read and write new files."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    "name",
    [
        "q?y",
        "q?mode=memory",
        "a%41b",
        "a#b",
        "a b",
        "näht 日本",
        "a\nb",
        ":memory:",
        "file:x?vfs=y",
        "a'b\"c",
        "\udcff",
    ],
)
def test_a_home_may_have_any_name(tmp_path: Path, name: str, open_umask: None) -> None:
    """A home may have any name, and its index is a private file inside it."""
    home = Home(tmp_path / name)
    folder = new_trial(home)
    record(folder, report(1, loss=0.5))
    folder.journal_path(1).chmod(0o600)  # which the test has written itself

    with Index(home) as index:
        index.refresh()
        assert [row.metrics for row in index.reports(1)] == [{"loss": 0.5}]

    assert list(tmp_path.iterdir()) == [home.root]
    assert home.database.stat().st_size > 0
    assert readable_by_others(home.root) == []


def test_nobody_else_may_read_what_a_training_leaves(tmp_path: Path, open_umask: None) -> None:
    """All files of a training are private to the user, except those within checkpoints."""
    (tmp_path / "train.py").write_text(_TRAINING)
    home = Home(tmp_path / "q?%41#\nnä")

    commands = (
        ["run", "--hparam", "lr=0.2", "--", sys.executable, "train.py"],
        ["checkpoint", "gc", "--save-trial-best", "0", "--save-trial-latest", "1", "--yes"],
        ["trial", "resume", "1", "--again"],
        ["trial", "continue", "1"],
        ["run", "--parent", "1", "--hypothesis", "none", "--", sys.executable, "train.py"],
        ["checkpoint", "list"],
    )
    for command in commands:
        done = run_cli(tmp_path, *command, CORE_SDK_HOME=str(home.root), CORE_SDK_JOB_ID="7")
        assert done.status == 0, done.errors

    assert set(tmp_path.iterdir()) == {tmp_path / "train.py", home.root}
    assert (home.runs / "3" / "sources.tar.gz").exists()
    for name in ("1.log", "tensorboard", "changes.journal", "1.run.json", "1.exit"):
        assert (home.runs / "1" / name).exists()
    assert readable_by_others(home.root) == []


def readable_by_others(root: Path) -> list[str]:
    """Returns what other users could read, apart from the checkpoints' content."""
    found = [root, *(path for path in root.rglob("*") if root / "checkpoints" not in path.parents)]
    return [f"{stat.filemode(path.lstat().st_mode)} {path.name}" for path in found if path.lstat().st_mode & 0o077]
