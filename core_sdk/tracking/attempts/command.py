"""The command of a trial: its program's path, and the name by which a person knows what it trains."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from core_sdk.errors import CommandNotExecutableError, CommandNotFoundError, CommandNotRecordableError

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_OWN_LAUNCHERS = "launch."
_OWN_LAUNCHER_PROGRAMS = "core-sdk-"
_TORCH_LAUNCHERS = "torch.distributed."


def resolve(argv: Sequence[str]) -> list[str]:
    """The command with its program's absolute path; a virtual environment's link to Python stays that link.

    Raises `CommandError`.
    """
    for argument in argv:
        _check_recordable(argument)
    program = shutil.which(argv[0])
    if program is not None:
        return [str(Path(program).absolute()), *argv[1:]]
    if os.sep in argv[0] and Path(argv[0]).exists():
        is_directory = Path(argv[0]).is_dir()
        raise CommandNotExecutableError(argv[0], "it is a directory" if is_directory else "permission denied")
    raise CommandNotFoundError(argv[0])


def script_name(argv: Sequence[str]) -> str:
    """The name of the script that the command trains, or of the module after `-m`.

    For a launcher's command it is the script that the launcher starts, as `main_script()` will name it there.
    """
    program = Path(argv[0]).name
    if _PYTHON.fullmatch(program):
        return _python_script_name(argv[1:])
    if program.startswith(_OWN_LAUNCHER_PROGRAMS):
        return _script_behind_overrides(argv[1:]) or program
    return _torchrun_script(argv[1:]) or program


def _check_recordable(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise CommandNotRecordableError(argument) from error


def _python_script_name(arguments: Sequence[str]) -> str:
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        if argument == "-m" and index + 1 < len(arguments):
            module = arguments[index + 1]
            return _launched_script(module, arguments[index + 2 :]) or module
        if argument in ("-", "-c"):
            break
        if not argument.startswith("-"):
            return Path(argument).name
        index += 2 if argument in _OPTIONS_WITH_VALUE else 1
    return "interactive"


def _launched_script(module: str, arguments: Sequence[str]) -> str | None:
    if module.startswith(_OWN_LAUNCHERS):
        return _script_behind_overrides(arguments)
    return _torchrun_script(arguments) if module.startswith(_TORCH_LAUNCHERS) else None


def _script_behind_overrides(arguments: Sequence[str]) -> str | None:
    """The script in a launcher's `[OVERRIDES... --] SCRIPT...`; SCRIPT may begin with `python` or be `-m MODULE`."""
    script = arguments[arguments.index("--") + 1 :] if "--" in arguments else arguments
    if not script:
        return None
    program = Path(script[0]).name
    if _PYTHON.fullmatch(program):
        return _python_script_name(script[1:])
    if script[0] == "-m":
        return _python_script_name(script)
    return None if program.startswith("-") else program


def _torchrun_script(arguments: Sequence[str]) -> str | None:
    return next((Path(argument).name for argument in arguments if argument.endswith(".py")), None)
