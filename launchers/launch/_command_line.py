"""The command line that all launchers understand: `[OVERRIDES… --] SCRIPT…`, or `--trial module:Class` for a script."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

_HELP = frozenset({"-h", "--help"})
_OWN_INTERPRETER = ("python", "python3")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_PYTHON_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
# Alone or after other letters: -c, -m, -um.
_CODE_OR_MODULE = re.compile(r"-[^-WXcm]*[cm]")
_TRIAL = "--trial"
_TRIAL_CLASS = re.compile(r"[\w.]+:[\w.]+")


# The statuses of a shell.
NOT_EXECUTABLE = 126
NOT_FOUND = 127


class CommandLineError(Exception):
    """The command cannot be started. The message is for the user; the launcher exits with `exit_code`."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandLineError):
    """The launcher does not understand the arguments."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=2)


class OptionParser(ArgumentParser):
    """A parser that raises `UsageError` where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}")


class HelpWanted(Exception):
    """The user asked for help: print `help_text(…)` and end well."""


class Command(msgspec.Struct, frozen=True):
    overrides: tuple[str, ...]
    """The options before the first `--`, for torchrun or for the program that the launcher replaces."""
    script: tuple[str, ...]
    """The script as the user wrote it, with its arguments. For a trial class, the module that trains it."""


def parse(argv: Sequence[str], own_options: Mapping[str, int] = {}) -> Command:
    """Splits the command line. Pure: looks at no file. Raises `UsageError`, `HelpWanted`.

    `own_options` are options that need no `--` after them, with the number of their values.
    """
    overrides, script = _split(argv, own_options)
    if _HELP.intersection(overrides) or script[:1] in (("-h",), ("--help",)):
        raise HelpWanted
    if any(_is_trial(override) for override in overrides):
        raise UsageError("--trial takes the script's place: OPTIONS… -- --trial module:Class")
    if script and _is_trial(script[0]):
        return Command(overrides, ("-m", "core_sdk.pytorch", _trial_class(script)))
    if not script:
        raise UsageError("there is nothing to start: a script is missing, as in `python3 train.py`")
    if script[0].startswith("-") and script[0] != "-m":
        raise UsageError(
            f"{script[0]} is no script. Options for the launcher need `--` behind them: OPTIONS… -- SCRIPT…"
        )
    if script == ("-m",):
        raise UsageError("a module's name is missing behind -m")
    return Command(overrides, script)


def check_script(script: Sequence[str]) -> None:
    """Refuses a script with which every rank would fail.

    Raises `CommandLineError`, and `UsageError` for an interpreter without a script.
    """
    program = script[0]
    if program == "-m":
        return
    if _is_python_file(program):
        _check_file(program, Path(program), is_for_python=True)
        return
    if program not in _OWN_INTERPRETER:
        _check_program(program)
    if _is_interpreter(program) and (file := _script_of_interpreter(program, script[1:])):
        _check_file(file, Path(file), is_for_python=True)


def program_argv(script: Sequence[str]) -> list[str]:
    """Returns the argument vector of each rank: the interpreter, with unbuffered output, and the script.

    Plain `python` and `python3` are the launcher's own interpreter, which has Core SDK and the training's libraries,
    whatever comes first in PATH.
    """
    if script[0] == "-m" or _is_python_file(script[0]):
        return [sys.executable, "-u", *script]
    if script[0] in _OWN_INTERPRETER:
        return [sys.executable, "-u", *script[1:]]
    if _is_interpreter(script[0]):
        return [script[0], "-u", *script[1:]]
    return list(script)


def help_text(launcher: str, overridden: str, options: str = "") -> str:
    """Returns the help. `launcher` is the module's name, `overridden` the program whose options may precede `--`.

    `options` is the help on these options.
    """
    return f"""\
usage: python -m {launcher} [OVERRIDES... --] (SCRIPT... | --trial MODULE:CLASS)

Starts SCRIPT once per slot, as the ranks of one training; each line of their output begins with [rank=N].

  SCRIPT...             python3 train.py, train.py, -m package.train, or any program, with its arguments
  --trial MODULE:CLASS  trains this Trial class as the experiment's configuration says
  OVERRIDES...          options of {overridden}; they need the `--`
  -h, --help            shows this text

  python -m {launcher} python3 train.py --lr 0.1
""" + (f"\noverrides:\n{options}" if options else "")


def _split(argv: Sequence[str], own_options: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    start = _num_own_words(argv, own_options)
    rest = tuple(argv[start:])
    # A `--` after a script belongs to the script.
    if "--" not in rest or not rest[0].startswith("-"):
        return tuple(argv[:start]), rest
    index = start + rest.index("--")
    return tuple(argv[:index]), tuple(argv[index + 1 :])


def _num_own_words(argv: Sequence[str], own_options: Mapping[str, int]) -> int:
    """Returns the number of words at the beginning that are the launcher's own options with their values."""
    index = 0
    while index < len(argv):
        name, equals, _ = argv[index].partition("=")
        if name not in own_options:
            break
        index += 1 if equals else 1 + own_options[name]
    return index


def _is_trial(argument: str) -> bool:
    return argument.partition("=")[0] == _TRIAL


def _trial_class(script: Sequence[str]) -> str:
    """Returns the value of `--trial`. Raises `UsageError`."""
    _, equals, value = script[0].partition("=")
    given, rest = (value, script[1:]) if equals else ("".join(script[1:2]), script[2:])
    if not _TRIAL_CLASS.fullmatch(given):
        raise UsageError(f"--trial {given!r} names no class: write module:Class, as in --trial model_def:MyTrial")
    if rest:
        raise UsageError(f"--trial takes the script's place, and has no arguments: {shlex.join(rest)}")
    return given


def _is_python_file(argument: str) -> bool:
    return argument.endswith(".py")


def _is_interpreter(argument: str) -> bool:
    return _PYTHON.fullmatch(Path(argument).name) is not None


def _script_of_interpreter(interpreter: str, arguments: Sequence[str]) -> str | None:
    """Returns the file that the interpreter runs; None if it runs a module or a line of code."""
    rest = iter(arguments)
    for argument in rest:
        if _CODE_OR_MODULE.match(argument):
            return None
        if not argument.startswith("-"):
            return argument
        if argument in _PYTHON_OPTIONS_WITH_VALUE:
            next(rest, None)
    raise UsageError(f"a script is missing behind {interpreter}")


def _check_program(program: str) -> None:
    found = shutil.which(program)
    if found is None and os.sep not in program:
        if Path(program).is_file():
            quoted = shlex.quote(program)
            raise _not_found(program, f"is not in PATH. For the file here write python3 {quoted} or ./{quoted}")
        raise _not_found(program, "is no program in PATH and no file here")
    _check_file(program, Path(found or program), is_for_python=False)
    if found is None:
        reason = f"permission denied. Make it executable, or put its interpreter before it: python3 {program}"
        raise _not_executable(program, reason)


def _check_file(script: str, path: Path, *, is_for_python: bool) -> None:
    """Refuses a file that cannot be run.

    `is_for_python`: it need not be executable, and may be a directory with a `__main__.py`.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise _not_found(script, f"does not exist{where}") from None
    except OSError as error:
        raise _not_found(script, f"cannot be found: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        if not is_for_python:
            raise _not_executable(script, "it is a directory")
        if not (path / "__main__.py").is_file():
            raise _not_executable(script, "it is a directory without __main__.py")
    elif is_for_python and not os.access(path, os.R_OK):
        raise _not_executable(script, "it may not be read")
    elif stat.S_ISREG(status.st_mode) and status.st_size == 0:
        raise _not_executable(script, "it is empty")


def _not_found(script: str, reason: str) -> CommandLineError:
    return CommandLineError(f"{script!r} {reason}", NOT_FOUND)


def _not_executable(script: str, reason: str) -> CommandLineError:
    return CommandLineError(f"{script!r} cannot be executed: {reason}", NOT_EXECUTABLE)
