"""Takes some fields of what is printed for programs, by their names."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any


def parse_fields(text: str) -> tuple[str, ...]:
    """Returns the names in `a,b.c`, each once. Raises `ValueError` for an empty one."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError(f"{text!r} has a name that is empty")
    return names


def take(value: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns these fields of a record, under the names as they were given; None for a part that it lacks. Pure.

    A dot leads into an object: `metrics.validation.loss`. Raises `ValueError` unless the record has the first
    part of each name: all records of a kind have the same fields, or are empty.
    """
    for name in names:
        if value and not any(_begins_with(name, key) for key in value):
            near = difflib.get_close_matches(name, value, 1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no field {name!r}.{guess} There are: {', '.join(value)}")
    return {name: _at(value, name) for name in names}


def _at(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping):
        return None
    if name in value:
        return value[name]
    # A metric's name may have dots, too: the longest key that fits is meant.
    for key in sorted(map(str, value), key=len, reverse=True):
        if _begins_with(name, key):
            return _at(value[key], name[len(key) + 1 :])
    return None


def _begins_with(name: str, key: str) -> bool:
    return name == key or name.startswith(f"{key}.")
