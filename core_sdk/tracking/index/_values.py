"""Converts times and metrics to what the index keeps, and back exactly."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from core_sdk.records import MAX_INT, Metric, Report, from_json, metrics_from_json, number_from_json, to_json

TICKS_PER_S = 2**22
"""The density of float64 around today's times (2004 to 2038), so that these come back exactly."""


def from_ticks(ticks: int, started: float) -> float:
    return started + ticks / TICKS_PER_S


def to_column(value: Metric | str) -> Metric | str | None:
    """Converts a value, as the journal spells it, to the column `point.value`. A finite float stays as it is.

    Raises `ValueError` for a value that no report can hold.
    """
    if isinstance(value, str):
        number = number_from_json(value)
        return None if math.isnan(number) else number
    if isinstance(value, int) and not -MAX_INT <= value < MAX_INT:
        if value != MAX_INT:
            raise ValueError("a metric is beyond 64 bits")
        return str(value)
    return value


def from_column(value: Any) -> Metric:
    if value is None:
        return math.nan
    return int(value) if isinstance(value, str) else value


COMPARABLE = "(point.value * 1)"
"""A value that the database compares as the number that it is: 2**63 is text otherwise."""


class Beside(msgspec.Struct, omit_defaults=True):
    """The parts of a report that are not numbers that a database can compare."""

    batch_metrics: list[dict[str, int | float | str]] | None = None
    metrics: dict[str, Any] | None = None
    """Metrics that are no numbers, and NaNs other than the usual one, as `to_json` spells them."""


def to_beside(report: Report) -> str | None:
    """Returns as JSON what is kept of a report beside its points, or None.

    Raises `ValueError` for a value that could not be read back.
    """
    for batch in report.batch_metrics or ():
        metrics_from_json(batch)
    from_json(report.json_metrics)
    nans = {
        name: to_json(number_from_json(value), name)
        for name, value in report.metrics.items()
        if isinstance(value, str) and value.startswith("NaN:")
    }
    beside = Beside(report.batch_metrics, {**nans, **(report.json_metrics or {})} or None)
    return None if beside == Beside() else msgspec.json.encode(beside).decode()


def from_beside(text: str) -> tuple[list[dict[str, Metric]] | None, dict[str, Any]]:
    """Returns the batch metrics, and the metrics that `to_beside` has kept."""
    beside = msgspec.json.decode(text, type=Beside)
    batches = None if beside.batch_metrics is None else [metrics_from_json(batch) for batch in beside.batch_metrics]
    return batches, from_json(beside.metrics or {})
