"""The command of a trial: its program's path, and the name by which a person knows what it trains."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from core_sdk._ground.environment import recorded_variables
from core_sdk._ground.records import CommandRecord
from core_sdk.errors import CommandError

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")
_LAUNCHERS = ("launch.", "torch.distributed.")


def command_here(argv: Sequence[str]) -> CommandRecord:
    """Returns the command as a resume starts it. Raises `CommandError`, or `OSError` without a working directory."""
    return CommandRecord(argv=resolve(argv), cwd=str(Path.cwd()), environment=recorded_variables())


def resolve(argv: Sequence[str], directory: Path = Path(), path: str | None = None) -> list[str]:
    """Returns the command with its program's absolute path; a virtual environment's link to Python is not followed.

    It is to be started in `directory`, with this PATH or the one of this process. Raises `CommandError`.
    """
    for argument in argv:
        _check_recordable(argument)
    # Absolute: `which` searches PATH for a bare name.
    named = str(directory.absolute() / argv[0]) if os.sep in argv[0] else argv[0]
    program = shutil.which(named, path=path)
    if program is not None:
        return [str(Path(program).absolute()), *argv[1:]]
    if os.sep in argv[0] and Path(named).exists():
        is_directory = Path(named).is_dir()
        raise CommandError.not_executable(argv[0], "it is a directory" if is_directory else "permission denied")
    raise _not_found(argv[0])


def script_name(argv: Sequence[str]) -> str:
    """Returns the first Python file or module (`-m`) among the arguments; otherwise the program's name.

    A launcher's module is taken only if there is no other. A Python without either is "interactive".
    """
    modules = []
    for argument, following in zip(argv, [*argv[1:], ""], strict=True):
        if argument.endswith(".py"):
            return Path(argument).name
        if argument == "-m" and following:
            modules.append(following)
            if not following.startswith(_LAUNCHERS):
                return following
    program = Path(argv[0]).name
    return modules[0] if modules else "interactive" if _PYTHON.fullmatch(program) else program


def _check_recordable(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise CommandError(
            f"the argument {argument!r} is not UTF-8, so that it could not be kept for a later resume", exit_status=2
        ) from error


def _not_found(program: str) -> CommandError:
    advice = "Give it as its path, or correct PATH"
    if program.endswith(".py"):
        advice = f"A script is started by its interpreter: `python {program}`"
    return CommandError(f"there is no program {program!r}. {advice}.", exit_status=127)
