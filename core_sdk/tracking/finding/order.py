"""The order of trials by one of their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_sdk.tracking.finding.facts import Facts


def in_order(found: Sequence[Facts], sort: str) -> list[Facts]:
    """By the value of a name, descending with "-" before it; trials without such a value come last."""
    name = sort.removeprefix("-")

    def is_comparable(value: Any) -> bool:
        return value is not None and value == value  # NaN does not equal itself

    def key(one: Facts) -> tuple[bool, Any]:
        value = one.values[name]
        return isinstance(value, str), value

    with_value = [one for one in found if is_comparable(one.values.get(name))]
    without = [one for one in found if not is_comparable(one.values.get(name))]
    return [*sorted(with_value, key=key, reverse=sort.startswith("-")), *without]
