"""Failures as a person sees them: one message on stderr, no traceback, and an exit status that says which kind."""

from __future__ import annotations

from core_sdk.cli._exit_codes import ExitCode
from core_sdk.cli._messages import say
from core_sdk.errors import (
    CheckpointNotFoundError,
    CommandNotExecutableError,
    CommandNotFoundError,
    CommandNotRecordableError,
    CoreSDKError,
    InvalidNameError,
    NotFoundError,
    UnsafePathError,
)

FAILURES = (CoreSDKError, InvalidNameError, UnsafePathError, OSError)
"""What commands raise for what the world or the caller did wrong. Anything else is our mistake."""


def exit_status_of(error: BaseException) -> int:
    """Says what went wrong, and gives the exit status for it."""
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
    """Without the number of an error of the operating system."""
    if isinstance(error, OSError) and not isinstance(error, CoreSDKError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)
