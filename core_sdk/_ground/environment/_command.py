"""The command line that has started this process."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path


def main_script() -> str:
    """Returns the running script's name for people: its file name, the module's name after `-m`, or "notebook"."""
    if "ipykernel" in sys.modules:
        return "notebook"
    arguments = list(sys.orig_argv[1:])
    if "-m" in arguments and arguments.index("-m") + 1 < len(arguments):
        before = arguments[: arguments.index("-m")]
        if all(argument.startswith("-") for argument in before):
            return arguments[arguments.index("-m") + 1]
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-", "-c") else "interactive"


def command_of_this_process() -> list[str] | None:
    """Returns the command that starts this process's script again, with the path of the interpreter.

    Returns None for what cannot be started again: a notebook, and code that was typed or piped.
    """
    if "ipykernel" in sys.modules or not sys.argv or sys.argv[0] in ("", "-"):
        return None
    return [sys.executable, *sys.orig_argv[1:]]


def is_script() -> bool:
    """Returns whether this process executes a script: no notebook, no tests, no child of multiprocessing."""
    is_typed = bool(sys.flags.interactive) or hasattr(builtins, "__IPYTHON__")
    is_host = is_typed or main_script() == "unittest" or "_pytest" in sys.modules
    return command_of_this_process() is not None and not is_host and not is_of_multiprocessing()


def script_and_arguments() -> list[str]:
    """Returns the script and its arguments, which are the same each time that a job starts it."""
    return list(sys.argv if is_of_multiprocessing() else sys.orig_argv[1:])


def is_of_multiprocessing() -> bool:
    """Returns whether multiprocessing has started this process.

    Its command then names pipes; `sys.argv` is the script's.
    """
    if "multiprocessing" not in sys.modules:
        return False
    from multiprocessing import parent_process  # slow to import, unless something else has

    return parent_process() is not None
