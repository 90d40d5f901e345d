"""Shows people a row: its fields by their titles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk._ground.records import strict_json
from core_sdk._home.fields import FieldKind, titled
from core_sdk._interfaces.render.text import format_time, listed


def properties_of(row: Any, special: Mapping[str, object]) -> dict[str, object]:
    """Returns what is shown of each field that has a title, by title.

    `special` has, by the name of a field, what is shown in place of its value; a mapping has other titles, too.
    """
    properties: dict[str, object] = {}
    for field in titled(type(row)).values():
        value = special[field.name] if field.name in special else as_text(field.kind, getattr(row, field.name))
        properties |= value if isinstance(value, Mapping) else {field.title: value}
    return properties


def as_text(kind: FieldKind, value: Any) -> str:
    """Returns the value of a field as text; empty for None, False and whatever is empty."""
    match kind:
        case "time":
            return format_time(value)
        case "texts":
            return listed(value)
        case "structure":
            return strict_json(value) if value else ""
        case "bool":
            return "yes" if value else ""
    return "" if value is None else str(value)
