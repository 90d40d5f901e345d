"""What a request is told when it cannot be answered: JSON in words of a person."""

from __future__ import annotations

import logging
import re

import msgspec

from core_sdk.errors import (
    AmbiguousNameError,
    CheckpointNotFoundError,
    CheckpointProtectedError,
    CoreSDKError,
    HomeError,
    MasterError,
    NameTakenError,
    NotFoundError,
    StorageError,
)
from core_sdk.tracking.finding.where import ConditionError

logger = logging.getLogger("core_sdk.server")


class Problem(msgspec.Struct, frozen=True):
    kind: str
    """A word for programs, such as `trial_not_found`."""
    message: str
    hint: str = ""
    """What to do next."""
    place: int | None = None
    """Where in the text of a condition."""


class Failure(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Problem


class RequestError(Exception):
    """A request that is refused because of its content."""

    def __init__(self, status: int, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(kind, message, hint)


def failure_of(error: Exception) -> tuple[int, Failure]:
    """Returns the status of the answer, and its body."""
    match error:
        case RequestError():
            return error.status, Failure(error.problem)
        case msgspec.ValidationError():
            return 400, Failure(Problem("bad_parameter", str(error)))
        case ConditionError():
            return 400, Failure(Problem("bad_condition", error.problem, error.pointer, error.place))
        case NotFoundError() | CheckpointNotFoundError():
            hint = "It may have been deleted meanwhile."
            return 404, Failure(Problem(_kind(error), str(error), hint))
        case StorageError() | HomeError() | MasterError():
            return 503, Failure(Problem(_kind(error), str(error)))
        case CheckpointProtectedError() | AmbiguousNameError() | NameTakenError() | CoreSDKError():
            return 409, Failure(Problem(_kind(error), str(error)))
        case ValueError():
            return 400, Failure(Problem("bad_value", str(error)))
        case OSError():
            what = error.strerror or type(error).__name__
            hint = "The page goes on reading what it can; nothing was changed."
            return 503, Failure(Problem("system_error", f"the system refuses it: {what}", hint))
        case _:
            logger.error("a request failed", exc_info=error)
            hint = "This is a mistake of Core SDK's: the terminal in which the server runs shows where."
            return 500, Failure(Problem("internal_error", f"{type(error).__name__} in the server", hint))


def _kind(error: Exception) -> str:
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
