"""An entrypoint becomes the arguments of a command."""

from __future__ import annotations

import pytest

from core_sdk._ground.config import entrypoint_argv
from core_sdk._ground.config.entrypoint import LAUNCHERS, Entrypoint, problem_of


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
        ("model_def:MyTrial", ["python3", "-m", "core_sdk.pytorch", "model_def:MyTrial"]),
        (" package.model_def:Outer.Inner\n", ["python3", "-m", "core_sdk.pytorch", "package.model_def:Outer.Inner"]),
        (
            "python3 -m determined.launch.horovod --trial model_def:MyTrial",
            ["sh", "-c", "python3 -m launch.horovod --trial model_def:MyTrial"],
        ),
        (
            "python3 -m determined.exec.harness a.b:MyTrial",
            ["sh", "-c", "python3 -m core_sdk.pytorch a.b:MyTrial"],
        ),
        (
            ("python3", "-m", "determined.exec.harness", "a.b:MyTrial"),
            ["python3", "-m", "core_sdk.pytorch", "a.b:MyTrial"],
        ),
    ],
)
def test_an_entrypoint_has_arguments(entrypoint: Entrypoint, argv: list[str]) -> None:
    """A string is for a shell, a list is not; the predecessor's launchers are ours."""
    assert problem_of(entrypoint) is None
    assert entrypoint_argv(entrypoint, num_slots=1) == argv


def test_a_trial_class_on_several_slots_has_a_launcher() -> None:
    """A trial class on several slots is started by the torchrun launcher, with one rank per slot."""
    argv = entrypoint_argv("model_def:MyTrial", num_slots=8)

    assert argv == ["python3", "-m", "launch.torch_distributed", "--trial", "model_def:MyTrial"]


@pytest.mark.parametrize(
    ("entrypoint", "problem"),
    [
        ("", "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        (" \n", "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        ((), "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        (("", "train.py"), "is empty: it is the command that each trial runs, such as `python3 train.py`"),
        (
            "python3 -m determined.launch.autohorovod train.py",
            f"names the launcher 'autohorovod', which does not exist; there are {', '.join(LAUNCHERS)}",
        ),
        (
            ("python3", "-m", "launch.torchrun"),
            f"names the launcher 'torchrun', which does not exist; there are {', '.join(LAUNCHERS)}",
        ),
    ],
)
def test_what_cannot_be_started_is_said(entrypoint: Entrypoint, problem: str) -> None:
    """An entrypoint that cannot be started is refused with the reason."""
    assert problem_of(entrypoint) == problem
