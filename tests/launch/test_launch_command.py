"""What a user may write behind a launcher, and what becomes of it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch._command_line import (
    Command,
    CommandLineError,
    HelpWanted,
    UsageError,
    check_script,
    help_text,
    parse,
    program_argv,
)


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a working directory with scripts of several kinds."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "train").write_text("#!/bin/sh\necho trained\n")
    (tmp_path / "train").chmod(0o700)
    (tmp_path / "unset").write_text("#!/bin/sh\n")
    (tmp_path / "unset").chmod(0o600)
    (tmp_path / "empty.py").touch()
    (tmp_path / "empty").touch(mode=0o700)
    (tmp_path / "directory").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "overrides", "script"),
    [
        ("train.py", "", "train.py"),
        ("python3 train.py --lr 0.1", "", "python3 train.py --lr 0.1"),
        ("--nproc-per-node 2 -- train.py", "--nproc-per-node 2", "train.py"),
        ("-- train.py", "", "train.py"),
        ("--nnodes=2 -- train.py -- --nnodes", "--nnodes=2", "train.py -- --nnodes"),
        ("-m package.train -h", "", "-m package.train -h"),
        ("train.py --trial 3 --help", "", "train.py --trial 3 --help"),
        ("python3 train.py -- --lr 1", "", "python3 train.py -- --lr 1"),
        ("--trial model_def:MyTrial", "", "-m core_sdk.pytorch model_def:MyTrial"),
        ("--trial=package.model_def:Outer.MyTrial", "", "-m core_sdk.pytorch package.model_def:Outer.MyTrial"),
        ("--nnodes=2 -- --trial model_def:MyTrial", "--nnodes=2", "-m core_sdk.pytorch model_def:MyTrial"),
    ],
)
def test_what_stands_before_the_first_dashes_is_an_override(line: str, overrides: str, script: str) -> None:
    """Words before the first `--` are overrides, and everything after it is the script."""
    assert parse(line.split()) == Command(tuple(overrides.split()), tuple(script.split()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "a script is missing"),
        ("--", "a script is missing"),
        ("--nproc-per-node 2 --", "a script is missing"),
        ("--nproc-per-node 2 train.py", "--nproc-per-node is no script.*OPTIONS… -- SCRIPT…"),
        ("-- --nproc-per-node 2 train.py", "no script"),
        ("-m", "a module's name is missing"),
        ("--trial model_def:Trial --", "takes the script's place: OPTIONS… -- --trial module:Class"),
        ("--nnodes=2 --trial=model_def:Trial -- train.py", "takes the script's place"),
        ("--trial", "names no class: write module:Class"),
        ("--trial train.py", "'train.py' names no class"),
        ("--trial=model_def", "'model_def' names no class"),
        ("--trial model_def:Trial --lr 1", "has no arguments: --lr 1"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_advice(line: str, message: str) -> None:
    """A command line without a script, or an ambiguous one, is refused with advice and status 2."""
    with pytest.raises(UsageError, match=message) as refused:
        parse(line.split())

    assert refused.value.exit_code == 2


@pytest.mark.parametrize("line", ["-h", "--help", "--nnodes=2 --help -- train.py", "-- --help"])
def test_help_is_given_when_asked_for(line: str) -> None:
    """--help prints the launcher's help unless it belongs to the script."""
    with pytest.raises(HelpWanted):
        parse(line.split())

    assert "python -m launch.torch_distributed [OVERRIDES... --] (SCRIPT... | --trial MODULE:CLASS)" in help_text(
        "launch.torch_distributed", "torchrun"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train.py --lr 1", [sys.executable, "-u", "train.py", "--lr", "1"]),
        ("-m package.train", [sys.executable, "-u", "-m", "package.train"]),
        ("python3 -O train.py", [sys.executable, "-u", "-O", "train.py"]),
        ("python -m package.train", [sys.executable, "-u", "-m", "package.train"]),
        ("python3.12 train.py", ["python3.12", "-u", "train.py"]),
        ("/opt/other/bin/python3 train.py", ["/opt/other/bin/python3", "-u", "train.py"]),
        ("./train --lr 1", ["./train", "--lr", "1"]),
        ("bash train.sh", ["bash", "train.sh"]),
    ],
)
def test_a_script_gets_its_interpreter(line: str, expected: list[str]) -> None:
    """A Python script runs with the launcher's interpreter unless the command names another."""
    assert program_argv(line.split()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "train.py",
        "./train.py",
        "python3 train.py --lr 1",
        "python -u -W ignore train.py",
        f"{shlex.quote(sys.executable)} -X dev train.py",
        "python3 -c pass",
        "python3 -uc pass",
        "python3 -m no.matter.what",
        "-m no.matter.what",
        "package",
        "python3 package",
        "./train",
        "sh train",
    ],
)
def test_what_can_be_started_is_let_through(line: str, scripts: Path) -> None:
    """Scripts, modules, packages and programs that can be started pass the check."""
    if line == "package":
        line = f"python3 {scripts / 'package'}"

    check_script(shlex.split(line))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("missing.py", "'missing.py' does not exist in /"),
        ("python3 -u missing.py", "'missing.py' does not exist"),
        ("./missing", "'./missing' does not exist"),
        ("missing", "no program in PATH and no file here"),
        ("/no/such/python3 train.py", "'/no/such/python3' does not exist"),
        ("train.py/deeper.py", "cannot be found: Not a directory"),
        ("unset", "python3 unset or ./unset"),
    ],
)
def test_a_script_that_does_not_exist_is_named(line: str, message: str) -> None:
    """A missing script is refused with status 127 before any rank starts."""
    with pytest.raises(CommandLineError, match=message) as refused:
        check_script(line.split())

    assert refused.value.exit_code == 127


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("empty.py", "'empty.py' cannot be executed: it is empty"),
        ("python3 empty.py", "it is empty"),
        ("./empty", "it is empty"),
        ("./unset", "permission denied.*python3 ./unset"),
        ("./directory", "it is a directory"),
        ("python3 directory", "it is a directory without __main__.py"),
    ],
)
def test_a_script_that_cannot_be_executed_is_refused(line: str, message: str) -> None:
    """A script that is empty or cannot be executed is refused with status 126."""
    with pytest.raises(CommandLineError, match=message) as refused:
        check_script(line.split())

    assert refused.value.exit_code == 126


@pytest.mark.parametrize("line", ["python3", "python3 -u", "python3 -W ignore"])
def test_an_interpreter_needs_a_script(line: str) -> None:
    """An interpreter without a script is refused, as it would wait for input."""
    with pytest.raises(UsageError, match="a script is missing behind python3"):
        check_script(line.split())


@pytest.mark.parametrize("line", ["train.py", "python3 train.py", "python3 package", "./train", "sh train"])
def test_what_was_let_through_runs(line: str) -> None:
    """Commands that pass the check can be run."""
    ended = subprocess.run(program_argv(line.split()), capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, "trained\n")
