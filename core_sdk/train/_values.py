"""The values of a report that are not numbers, such as texts, lists, dicts and None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk._ground.records import number_of, to_json

VALUES = "values"
"""The group in which they are recorded, apart from the numbers of the same report."""


def is_value(value: Any) -> bool:
    """Returns whether JSON keeps the value, and it is not a number. Media are reported like numbers."""
    if not (value is None or isinstance(value, str | list | tuple | Mapping)):
        return False
    try:
        to_json(value, "it")
    except (TypeError, ValueError):
        return False
    return True


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metrics of a report as values that JSON can keep: Python's numbers, and no media."""
    numbers = {name: number_of(value) for name, value in metrics.items()}
    return {
        name: value if numbers[name] is None else numbers[name]
        for name, value in metrics.items()
        if numbers[name] is not None or is_value(value)
    }
