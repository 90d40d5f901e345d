"""A command is named by what it trains, and started by its program's own path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from core_sdk._home.attempts.command import resolve, script_name
from core_sdk.errors import CommandError


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 1", "train.py"),
        ("/opt/venv/bin/python3.12 -u -W ignore scripts/train.py other.py", "train.py"),
        ("python -m package.train --lr 1", "package.train"),
        ("python -m launch.torch_distributed python3 scripts/train.py --lr 1", "train.py"),
        ("python3 -m launch.torch_distributed --nnodes 2 -- train.py --evaluate other.py", "train.py"),
        ("python -m launch.torch_distributed --max-restarts=3 -- python3 -u -m package.train data.py", "package.train"),
        ("python -m launch.torch_distributed -m package.train", "package.train"),
        ("python -m launch.torch_distributed ./train --lr 1", "launch.torch_distributed"),
        ("python -m launch.torch_distributed --trial model_def:Trial", "launch.torch_distributed"),
        ("python -m launch.torch_distributed", "launch.torch_distributed"),
        ("/opt/venv/bin/core-sdk-torch-distributed --nproc-per-node=2 -- python3 train.py", "train.py"),
        ("core-sdk-torch-distributed", "core-sdk-torch-distributed"),
        ("python -m torch.distributed.run train.py", "train.py"),
        ("python -c pass", "interactive"),
        ("torchrun --nproc-per-node 2 scripts/train.py", "train.py"),
        ("./train --lr 1", "train"),
    ],
)
def test_an_experiment_is_named_after_the_script(command: str, name: str) -> None:
    """The experiment's name is the script's, whatever interpreter, options or arguments the command has."""
    assert script_name(command.split()) == name


def test_a_virtual_environments_python_stays_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link of a virtual environment's Python is not followed, since its target lacks the environment's packages."""
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    argv = resolve(["python", "train.py"])

    assert argv == [str(link), "train.py"]


def test_a_relative_program_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative program is recorded as an absolute path, so that a resume can start it from anywhere."""
    program = tmp_path / "train"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.chdir(tmp_path)

    assert resolve(["./train"]) == [str(program)]


def test_what_cannot_be_started_is_refused(tmp_path: Path) -> None:
    """A missing program, one without permission and a directory are refused."""
    script = tmp_path / "train.py"
    script.write_text("")

    with pytest.raises(CommandError, match="no-such-program"):
        resolve(["no-such-program"])
    with pytest.raises(CommandError):
        resolve([str(tmp_path / "missing")])
    with pytest.raises(CommandError, match="permission denied"):
        resolve([str(script)])
    with pytest.raises(CommandError, match="directory"):
        resolve([str(tmp_path)])


def test_an_argument_that_json_cannot_keep_is_refused() -> None:
    """An argument that is not UTF-8 is refused, since JSON cannot keep it."""
    with pytest.raises(CommandError, match="udcff"):
        resolve([sys.executable, "\udcff"])
