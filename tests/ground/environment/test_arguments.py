"""Hyperparameters in the command of a trial, for scripts that read arguments."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from core_sdk._ground.environment.arguments import fill, named, options
from core_sdk.errors import CommandError

HPARAMS: dict[str, Any] = {"lr": 1e-05, "batch-size": 32, "optimizer": {"name": "adam", "betas": [0.9, 0.999]}}
SHOW = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]


@pytest.mark.parametrize(
    ("hparams", "words"),
    [
        ({"lr": 0.1, "batch-size": 32}, ["--lr=0.1", "--batch-size=32"]),
        ({"batch_size": 32}, ["--batch_size=32"]),
        ({"model": {"dim": 8, "act": {"name": "relu"}}}, ["--model.dim=8", "--model.act.name=relu"]),
        ({"amp": True, "debug": False, "resume": None}, ["--amp"]),
        ({"layers": [64, 32], "none": []}, ["--layers", "64", "32"]),
        ({"layers": [[1, 2], "a b"]}, ["--layers", "[1, 2]", "a b"]),
        ({"x": -1, "y": "-z", "z": ""}, ["--x=-1", "--y=-z", "--z="]),
        ({"a": math.inf, "b": math.nan, "c": 10**20, "d": "ö"}, ["--a=inf", "--b=nan", f"--c={10**20}", "--d=ö"]),
        ({}, []),
    ],
)
def test_hyperparameters_are_options(hparams: dict[str, Any], words: list[str]) -> None:
    """Hyperparameters become options with their own names, in their order."""
    assert options(hparams) == words


@pytest.mark.parametrize(
    ("argv", "filled"),
    [
        (["train.py", "--lr", "${hparams.lr}"], ["train.py", "--lr", "1e-05"]),
        (["a=${hparams.lr},b=${hparams.batch-size}"], ["a=1e-05,b=32"]),
        (["${hparams.optimizer.name}", "${hparams.optimizer.betas}"], ["adam", "[0.9, 0.999]"]),
        (["${hparams.optimizer}"], ['{"name": "adam", "betas": [0.9, 0.999]}']),
        (
            ["x", "${args}"],
            ["x", "--lr=1e-05", "--batch-size=32", "--optimizer.name=adam", "--optimizer.betas", "0.9", "0.999"],
        ),
        (["$HOME", "${HOME}", "$$", "$lr", "${lr}", "{{lr}}"], ["$HOME", "${HOME}", "$$", "$lr", "${lr}", "{{lr}}"]),
    ],
)
def test_a_command_is_filled(argv: list[str], filled: list[str]) -> None:
    """Placeholders in a command are filled, and everything else stays as it is."""
    assert fill(argv, HPARAMS) == (filled, {})


@pytest.mark.parametrize("shell", [["sh", "-c"], ["/bin/bash", "-c"], ["bash", "-ec"], ["x", "sh", "-c"]])
def test_in_a_shell_the_values_are_variables(shell: list[str]) -> None:
    """In a shell's command, placeholders become quoted variables, except within single quotes."""
    text = "LR='${hparams.lr}' train.py ${args} \"a ${hparams.lr}\" \\${args} $$ ${HOME}"

    argv, variables = fill([*shell, text], {"lr": 0.1, "n": [1]})

    assert argv == [
        *shell,
        'LR=\'${hparams.lr}\' train.py "${CORE_SDK_ARGUMENT_1}" "${CORE_SDK_ARGUMENT_2}" "${CORE_SDK_ARGUMENT_3}" '
        '"a ${CORE_SDK_ARGUMENT_4}" \\${args} $$ ${HOME}',
    ]
    assert list(variables.values()) == ["--lr=0.1", "--n", "1", "0.1"]


HOSTILE = [
    "a b",
    "'",
    '"',
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "* ?",
    "\\",
    "a\nb",
    "${HOME}",
    "!x",
    "#",
]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_no_value_is_run_by_a_shell(shell: str, tmp_path: Any) -> None:
    """No value is executed by a shell: each reaches the script unchanged, wherever its placeholder is."""
    hparams = {f"v{index}": value for index, value in enumerate(HOSTILE)}
    places = " ".join(f'${{hparams.{name}}} "<${{hparams.{name}}}>" x=${{hparams.{name}}}' for name in hparams)
    argv, variables = fill([shell, "-c", f"{sys.executable} -c '{SHOW[2]}' {places} ${{args}}"], hparams)

    shown = subprocess.run(argv, env=variables, cwd=tmp_path, stdout=subprocess.PIPE, check=True).stdout

    expected = [word for value in HOSTILE for word in (value, f"<{value}>", f"x={value}")]
    assert json.loads(shown) == [*expected, *(f"--{name}={value}" for name, value in hparams.items())]
    assert not list(tmp_path.iterdir())


def test_an_unknown_name_is_refused() -> None:
    """A placeholder with an unknown name is refused, with the names that exist."""
    argv = ["sh", "-c", "train.py ${hparams.learning_rate}"]

    with pytest.raises(CommandError, match="no hyperparameter learning_rate") as caught:
        fill(argv, HPARAMS)

    assert "It has lr, batch-size, optimizer.name, optimizer.betas." in str(caught.value)
    assert named(argv) == ["learning_rate"]
