"""How failures are shown: one message on stderr without a traceback, and an exit status for each kind."""

from __future__ import annotations

from core_sdk.cli._exit_codes import ExitCode
from core_sdk.cli._messages import say
from core_sdk.errors import (
    AmbiguousNameError,
    CheckpointNotFoundError,
    CodeDirectoryError,
    CommandNotExecutableError,
    CommandNotFoundError,
    CommandNotRecordableError,
    CoreSDKError,
    InvalidNameError,
    NotFoundError,
    UnsafePathError,
)

FAILURES = (CoreSDKError, AmbiguousNameError, CodeDirectoryError, InvalidNameError, UnsafePathError, OSError)
"""The errors that a command expects. Any other one is a mistake of ours, and shows its traceback."""


def exit_status_of(error: BaseException) -> int:
    """Prints what went wrong, and returns the exit status for it."""
    say(_words(error))
    match error:
        case CommandNotFoundError():
            return ExitCode.COMMAND_NOT_FOUND
        case CommandNotExecutableError():
            return ExitCode.NOT_EXECUTABLE
        case CommandNotRecordableError():
            return ExitCode.USAGE
        case NotFoundError() | CheckpointNotFoundError():
            return ExitCode.NOT_FOUND
        case CoreSDKError() | OSError():
            return ExitCode.FAILURE
        case _:
            return ExitCode.USAGE


def _words(error: BaseException) -> str:
    """The message; of an error of the operating system without its number."""
    if isinstance(error, OSError) and not isinstance(error, CoreSDKError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)
