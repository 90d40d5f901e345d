"""Typed messages between processes, each as one line of JSON."""

from __future__ import annotations

import json
from typing import Any, TypeVar, overload

import msgspec

from core_sdk._ground.decoding import convert

T = TypeVar("T")


def to_line(message: object) -> bytes:
    """Returns the message as a line. Its strings may hold the surrogates of names that are not UTF-8."""
    return json.dumps(msgspec.to_builtins(message)).encode() + b"\n"


@overload
def from_line(line: bytes, type: type[T]) -> T: ...


@overload
def from_line(line: bytes, type: Any) -> Any: ...


def from_line(line: bytes, type: Any) -> Any:
    """Returns the message of a line. Raises `ValueError` with the field if it is not one of this type."""
    return convert(json.loads(line), type)
