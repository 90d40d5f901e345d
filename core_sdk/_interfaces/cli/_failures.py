"""The exit statuses of `core-sdk`, and how failures are shown: one message on stderr, without a traceback."""

from __future__ import annotations

import enum

from core_sdk import errors
from core_sdk._ground.files import explained
from core_sdk._interfaces.cli._messages import say

FAILURES = (
    errors.CoreSDKError,
    errors.AmbiguousNameError,
    errors.CodeDirectoryError,
    errors.InvalidConfigError,
    errors.InvalidNameError,
    errors.NameTakenError,
    errors.UnsafePathError,
    OSError,
)
"""The errors that a command expects. Any other one is a mistake of ours, and shows its traceback."""


class ExitCode(enum.IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    """A trial, an experiment, a checkpoint or a model does not exist."""
    PAUSED = 75
    """The trial was stopped on request and can be resumed; EX_TEMPFAIL of sysexits.h."""
    CANCELED = 130
    """The trial was canceled by Ctrl-C; 128 + SIGINT, as in a shell."""


def exit_status_of(error: BaseException) -> int:
    """Prints what went wrong, and returns the exit status for it."""
    for line in _lines(error):
        say(line)
    match error:
        case errors.CommandError():
            return error.exit_status
        case errors.MasterRefusedError():
            return ExitCode.USAGE
        case errors.NotFoundError() | errors.CheckpointNotFoundError():
            return ExitCode.NOT_FOUND
        case errors.CoreSDKError() | OSError():
            return ExitCode.FAILURE
        case _:
            return ExitCode.USAGE


def _lines(error: BaseException) -> list[str]:
    """Returns the message's lines: for a configuration one for each problem, for the system's errors without number."""
    if isinstance(error, errors.InvalidConfigError):
        return [str(problem) for problem in error.problems]
    if isinstance(error, OSError) and not isinstance(error, errors.CoreSDKError) and error.strerror:
        reason = explained(error).strerror or str(error)
        return [reason if error.filename is None else f"{error.filename}: {reason}"]
    return [str(error)]
