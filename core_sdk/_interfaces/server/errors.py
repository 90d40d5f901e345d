"""Answers a request that cannot be served with JSON whose message a person can read."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException

from core_sdk._analysis.charts.formula import FormulaError
from core_sdk._home.finding.where import ConditionError
from core_sdk.errors import (
    AmbiguousNameError,
    CheckpointNotFoundError,
    CoreSDKError,
    HomeError,
    HomesOnlyReadError,
    MasterError,
    NameTakenError,
    NotFoundError,
    StorageError,
    TextChangedError,
)

logger = logging.getLogger("core_sdk.server")


class Problem(msgspec.Struct, frozen=True):
    kind: str
    """A word for programs, such as `trial_not_found`."""
    message: str
    hint: str = ""
    """Advice on what to do next."""
    place: int | None = None
    """The place in the text of a condition or a formula."""
    present: str | None = None
    """The text as it is now, if somebody else has changed it meanwhile."""


class Failure(msgspec.Struct, frozen=True):
    """The body of every answer that is not a success."""

    error: Problem


class RequestError(Exception):
    """A request that is refused."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        hint: str = "",
        *,
        place: int | None = None,
        present: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.failure = Failure(Problem(kind, message, hint, place, present))
        self.headers = headers
        """Headers of the answer, besides the headers that every answer has."""


def refusal_of(error: Exception) -> RequestError:
    """Returns what the request is told when it fails with this error."""
    match error:
        case RequestError():
            return error
        case HTTPException(status_code=405):
            message = "this is not possible here with the request's method"
            return RequestError(405, "method_not_allowed", message, headers=error.headers)
        case HTTPException():
            hint = "The page is at /, and /api/v1/openapi.json describes the rest."
            return RequestError(error.status_code, "not_found", "there is nothing at this address", hint)
        case msgspec.ValidationError():
            return RequestError(400, "bad_parameter", str(error))
        case ConditionError():
            return RequestError(400, "bad_condition", error.problem, error.pointer, place=error.place)
        case FormulaError():
            return RequestError(400, "bad_formula", error.problem, place=error.place)
        case NotFoundError() | CheckpointNotFoundError():
            return RequestError(404, _kind(error), str(error), "It may have been deleted meanwhile.")
        case HomesOnlyReadError():
            return RequestError(403, _kind(error), str(error))
        case StorageError() | HomeError() | MasterError():
            return RequestError(503, _kind(error), str(error))
        case TextChangedError():
            return RequestError(409, _kind(error), str(error), present=error.present)
        case CoreSDKError() | AmbiguousNameError() | NameTakenError():
            return RequestError(409, _kind(error), str(error))
        case ValueError():
            return RequestError(400, "bad_value", str(error))
        case OSError():
            what = error.strerror or type(error).__name__
            hint = "The page goes on reading what it can; nothing was changed."
            return RequestError(503, "system_error", f"the system refuses it: {what}", hint)
        case _:
            logger.error("a request failed", exc_info=error)
            hint = "This is a mistake of Core SDK's: the terminal in which the server runs shows where."
            return RequestError(500, "internal_error", f"{type(error).__name__} in the server", hint)


def _kind(error: Exception) -> str:
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
