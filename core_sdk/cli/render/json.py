"""Strict JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

import msgspec

from core_sdk.records import nonfinite_to_text


def encode(value: Any) -> str:
    """JSON on one line, in which NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity".

    The text is ASCII, so that no terminal and no encoding can spoil it.
    """
    return json.dumps(_plain(value), allow_nan=False)


def print_object(value: Any) -> None:
    print(json.dumps(_plain(value), allow_nan=False, indent=2))


def print_list(values: Iterable[Any]) -> None:
    """Prints one element per line, each as soon as the iterable yields it."""
    print("[", end="")
    separator = "\n"
    for value in values:
        print(separator + encode(value), end="")
        separator = ",\n"
    print("\n]" if separator != "\n" else "]")


def fields_of(row: Any) -> dict[str, Any]:
    """The fields of a dataclass, by name."""
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return nonfinite_to_text(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(fields_of(value))
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.structs.asdict(value))
    return value
