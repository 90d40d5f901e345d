"""Calls, values and failures as bytes.

They are pickled by cloudpickle, so that functions and classes of a script or a notebook are sent too. Both sides
unpickle only what came over a connection that is private to this program and its worker.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from core_sdk._execution.workers._engine import WorkerAnswer
from core_sdk._ground.pickling import dumps_by_value
from core_sdk._machine.processes import shortened
from core_sdk.errors import NotPicklableError, WorkerFailedError

Function = Callable[..., Any]

_NOT_PICKLABLE = (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError)


def name_of(function: Function) -> str:
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{name}()"


def encode_request(function: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
    """Encodes a call. Raises `NotPicklableError`."""
    parts = {name_of(function): function, **{f"argument {index}": each for index, each in enumerate(args, start=1)}}
    parts |= {f"argument {name!r}": value for name, value in kwargs.items()}
    return _pickle((function, tuple(args), dict(kwargs)), f"the call of {name_of(function)}", parts)


@contextlib.contextmanager
def named_as(what: str, parts: Mapping[str, object]) -> Iterator[None]:
    """Names `what`, and the one of its parts, in a `NotPicklableError` of the block.

    The user does not know of the call behind it.
    """
    try:
        yield
    except NotPicklableError as error:
        names = {repr(name): part for name, part in parts.items()}
        raise NotPicklableError(what, _first_unpicklable(names), error.error_text) from error.__cause__


def decode_request(request: bytes) -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    return pickle.loads(request)  # type: ignore[no-any-return]  # noqa: S301 - of the program that has started us


def encode_value(value: object) -> bytes:
    """Encodes a value. Raises `NotPicklableError`."""
    return _pickle(value, "what the function has returned", {})


def decode_value(function: str, rank: int, content: bytes) -> Any:
    try:
        return pickle.loads(content)  # noqa: S301 - of a worker that we have started
    except Exception as error:
        reason = f"what it has returned cannot be unpickled here: {_last_line(error)}"
        raise WorkerFailedError(rank, function, reason) from error


def encode_failure(error: BaseException) -> WorkerAnswer:
    """Encodes an exception: its text, its traceback, and itself, pickled, or nothing if it cannot be pickled."""
    lines = traceback.format_exception(error)
    try:
        pickled = dumps_by_value(error)
        # Many exceptions can be pickled but not unpickled, since their class takes other arguments than its message.
        pickle.loads(pickled)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever a class of the script's raises
        pickled = b""
    texts = _printable(shortened(_last_line(error))), _printable(shortened("".join(lines)))
    return WorkerAnswer(is_failure=True, content=pickle.dumps((*texts, pickled)))


def decode_failure(function: str, rank: int, content: bytes) -> WorkerFailedError:
    error_text, traceback_text, pickled = pickle.loads(content)  # noqa: S301 - of a worker that we have started
    failed = WorkerFailedError(rank, function, error_text, traceback_text)
    if pickled:
        try:
            failed.__cause__ = pickle.loads(pickled)  # noqa: S301 - of a worker that we have started
        except Exception:  # noqa: BLE001 - its module is missing here; the text says all
            return failed
    return failed


def _pickle(value: object, what: str, parts: Mapping[str, object]) -> bytes:
    try:
        return dumps_by_value(value)
    except _NOT_PICKLABLE as error:
        # From Python 3.14 on, further lines of the error lead to the object.
        text = ", ".join(_last_line(error).splitlines())
        raise NotPicklableError(what, _first_unpicklable(parts), text) from error


def _first_unpicklable(parts: Mapping[str, object]) -> str:
    """Returns the name of the first part that cannot be pickled; an empty text if each of them alone can be."""
    for name, part in parts.items():
        try:
            dumps_by_value(part)
        except Exception:  # noqa: BLE001 - whatever a class of the script's raises
            return name
    return ""


def _last_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
