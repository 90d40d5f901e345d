"""An entrypoint becomes the arguments of a command."""

from __future__ import annotations

import pytest

from core_sdk.config import entrypoint_argv
from core_sdk.config.entrypoint import Entrypoint, problem_of


@pytest.mark.parametrize(
    ("entrypoint", "argv"),
    [
        ("python3 train.py && echo done", ["sh", "-c", "python3 train.py && echo done"]),
        (("python3", "train.py", "a b"), ["python3", "train.py", "a b"]),
        (
            "python3 -m determined.launch.torch_distributed python3 train.py",
            ["sh", "-c", "python3 -m launch.torch_distributed python3 train.py"],
        ),
        (
            "A=1 python3 -m  determined.launch.deepspeed -- train.py --about determined.launch.horovod",
            ["sh", "-c", "A=1 python3 -m  launch.deepspeed -- train.py --about determined.launch.horovod"],
        ),
        (
            ("python3", "-m", "determined.launch.horovod", "train.py"),
            ["python3", "-m", "launch.horovod", "train.py"],
        ),
        (("python3", "-m", "launch.wrap_rank"), ["python3", "-m", "launch.wrap_rank"]),
    ],
)
def test_an_entrypoint_has_arguments(entrypoint: Entrypoint, argv: list[str]) -> None:
    """A string is for a shell, a list is not; the predecessor's launchers are ours."""
    assert problem_of(entrypoint) is None
    assert entrypoint_argv(entrypoint) == argv


TRIAL_CLASS = "which this version cannot run: give the command of a script instead"


@pytest.mark.parametrize(
    ("entrypoint", "problem"),
    [
        ("", "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        (" \n", "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        ((), "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        (("", "train.py"), "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        ("model_def:MyTrial", f"names a Trial class, 'model_def:MyTrial', {TRIAL_CLASS}"),
        (
            "python3 -m determined.exec.harness a.b:MyTrial",
            f"names a Trial class, 'python3 -m determined.exec.harness a.b:MyTrial', {TRIAL_CLASS}",
        ),
        (
            "python3 -m determined.launch.autohorovod train.py",
            "names the launcher 'autohorovod', which does not exist; there are torch_distributed, deepspeed, horovod, "
            "tensorflow, wrap_rank",
        ),
        (
            ("python3", "-m", "launch.torchrun"),
            "names the launcher 'torchrun', which does not exist; there are torch_distributed, deepspeed, horovod, "
            "tensorflow, wrap_rank",
        ),
    ],
)
def test_what_cannot_be_started_is_said(entrypoint: Entrypoint, problem: str) -> None:
    """Before an experiment of it exists."""
    assert problem_of(entrypoint) == problem
