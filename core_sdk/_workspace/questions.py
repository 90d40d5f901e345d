"""The questions of `View` on their way to a workspace: by their names, as MessagePack, which keeps what JSON does not.

What can be asked, and with which types, is read from the protocol: a question that is added there can be asked here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

from core_sdk import errors
from core_sdk._ground.decoding import convert, msgpack_decoder
from core_sdk._home.view import View

# The first two say what a view of one's own is to do; the third is composed of others.
_NOT_ASKED = ("refresh", "refresh_part", "reports")


@dataclass(frozen=True)
class Question:
    """A method of `View`."""

    name: str
    parameters: Mapping[str, Any]
    """The types of its arguments, by their names and in their order."""
    answer: Any
    """The type of its answer."""

    def encoded(self, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> bytes:
        """Returns the body of a request."""
        bound = inspect.signature(getattr(View, self.name)).bind(None, *arguments, **keywords)
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        return msgspec.msgpack.encode(msgspec.to_builtins(given, builtin_types=(bytes,)))

    def asked(self, view: View, body: bytes) -> bytes:
        """Asks a view, and returns the body of the answer. Raises what the view raises, and `ValueError`."""
        given = msgpack_decoder(dict[str, Any])(body)
        if unknown := given.keys() - self.parameters.keys():
            raise ValueError(f"{self.name} has no {', '.join(sorted(unknown))}")
        arguments = {name: convert(value, self.parameters[name], strict=False) for name, value in given.items()}
        return encode_answer(getattr(view, self.name)(**arguments))

    def decoded(self, body: bytes) -> Any:
        """Returns the answer in the body."""
        return msgpack_decoder(self.answer)(body)


def encode_answer(answer: object) -> bytes:
    """Encodes an answer. Its columns, which may be arrays, become lists."""
    return msgspec.msgpack.encode(answer, enc_hook=list)


def _questions() -> dict[str, Question]:
    found = {}
    for name, function in inspect.getmembers(View, inspect.isfunction):
        if not name.startswith("_") and name not in _NOT_ASKED:
            hints = get_type_hints(function, include_extras=True)
            answer = hints.pop("return")
            found[name] = Question(name, hints, answer)
    return found


QUESTIONS = _questions()


class ToldError(msgspec.Struct, frozen=True):
    """An error of a view, on its way to whoever has asked."""

    kind: str
    message: str
    attributes: dict[str, Any] = {}

    @classmethod
    def of(cls, error: Exception) -> ToldError:
        attributes = {name: value for name, value in vars(error).items() if isinstance(value, int | str | float)}
        return cls(type(error).__name__, str(error), attributes)

    def error(self) -> Exception:
        """Returns the error as the view has raised it, or a `ValueError` if it is none of ours."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            return ValueError(self.message)
        error = kind.__new__(kind, self.message)
        error.__dict__.update(self.attributes)
        return error


encode_error = msgspec.msgpack.encode


def decode_error(body: bytes) -> ToldError:
    return msgpack_decoder(ToldError)(body)
