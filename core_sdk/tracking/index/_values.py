"""Converts the parts of a report to what the index keeps, and back exactly."""

from __future__ import annotations

from typing import Any

import msgspec

from core_sdk.records import MAX_INT, Metric, Report, from_json, metrics_from_json


def to_numbers(metrics: dict[str, Metric | str]) -> dict[str, Metric]:
    """Returns the metrics of a line as numbers. Raises `ValueError` for a value that no report can hold."""
    numbers = metrics_from_json(metrics)
    if any(isinstance(value, int) and not -MAX_INT <= value <= MAX_INT for value in numbers.values()):
        raise ValueError("a metric is beyond 64 bits")
    return numbers


class Beside(msgspec.Struct, omit_defaults=True):
    """The parts of a report that are no numbers of its series."""

    batch_metrics: list[dict[str, int | float | str]] | None = None
    metrics: dict[str, Any] | None = None
    """Metrics that are no numbers, as `to_json` spells them."""
    names: list[str] | None = None
    """The names of the report's numbers if it has batch metrics."""


def to_beside(report: Report) -> str | None:
    """Returns as JSON what is kept of a report beside its points, or None.

    Raises `ValueError` for a value that could not be read back.
    """
    for batch in report.batch_metrics or ():
        metrics_from_json(batch)
    from_json(report.json_metrics)
    names = None if report.batch_metrics is None else list(report.metrics)
    beside = Beside(report.batch_metrics, report.json_metrics or None, names)
    return None if beside == Beside() else msgspec.json.encode(beside).decode()


def from_beside(text: str) -> tuple[list[dict[str, Metric]] | None, dict[str, Any]]:
    """Returns the batch metrics, and the metrics that `to_beside` has kept."""
    beside = msgspec.json.decode(text, type=Beside)
    batches = None if beside.batch_metrics is None else [metrics_from_json(batch) for batch in beside.batch_metrics]
    return batches, from_json(beside.metrics or {})


def names_beside(text: str | None) -> set[str]:
    """Returns the names of the metrics to which belongs what `to_beside` has kept."""
    beside = Beside() if text is None else msgspec.json.decode(text, type=Beside)
    return {*(beside.metrics or ()), *(beside.names or ())}
