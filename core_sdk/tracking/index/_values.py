"""Times and metrics on their way into the index and back, exactly."""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

from core_sdk.records import MAX_INT, Metric

TICKS_PER_S = 2**22
"""Neighbouring float64 lie this dense around today's times (2004 to 2038), so that these come back exactly."""

_NONFINITE = {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}


def from_ticks(ticks: int, started: float) -> float:
    return started + ticks / TICKS_PER_S


def to_column(value: Metric | str) -> Metric | str | None:
    """What `point.value` holds for a value as the journal spells it; a finite float is itself.

    Raises `ValueError` for what no report can hold.
    """
    if isinstance(value, str):
        if value not in _NONFINITE:
            raise ValueError(f"the metric {value!r} is not a number")
        return _NONFINITE[value]
    if isinstance(value, int) and not -MAX_INT <= value < MAX_INT:
        if value != MAX_INT:
            raise ValueError("a metric is beyond 64 bits")
        return str(value)
    return value


def from_column(value: Any) -> Metric:
    if value is None:
        return math.nan
    return int(value) if isinstance(value, str) else value


def comparable(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """A value that the database compares as the number that it is: 2**63 is text otherwise."""
    return column * sa.literal_column("1")
