"""Encodes rows and records as strict JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec

from core_sdk._ground.records._values import nonfinite_to_text

_encode = json.JSONEncoder(allow_nan=False).encode


def strict_json(value: Any) -> str:
    """Returns JSON on one line, in which NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity".

    The text is ASCII, so that no terminal and no encoding can damage it.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError):  # rare: rows, keys that are not strings, and numbers that are not finite
        return _encode(plain(value))


def plain(value: Any) -> Any:
    """Returns a copy in which rows and records are dicts, and numbers that are not finite are strings."""
    if value is None or type(value) in (str, int, bool):  # most values of long answers
        return value
    if isinstance(value, float):
        return nonfinite_to_text(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(fields_of(value))
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    return value


def field_names(kind: type) -> tuple[str, ...]:
    """Returns the names of the fields of structs or dataclass instances of this type."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]


def fields_of(row: Any) -> dict[str, Any]:
    """Returns the fields of a struct or of a dataclass instance by name."""
    return {name: getattr(row, name) for name in field_names(type(row))}
