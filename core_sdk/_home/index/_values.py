"""Converts the parts of a report to what the index keeps, and back exactly."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.records import MAX_INT, Metric, Report, from_json, metrics_from_json

# The clock of the attempt counts the wait for data; nobody asks for that of one report.
_FIELDS_BESIDE = [field for field in msgspec.structs.fields(Report) if not field.required and field.name != "loading_s"]

parts_beside = attrgetter(*(field.name for field in _FIELDS_BESIDE))
"""Returns the parts of a report that are no numbers of its series: all that a report may leave out."""

NOTHING_BESIDE = tuple(field.default for field in _FIELDS_BESIDE)
"""These parts of a report that has only numbers."""


def to_numbers(metrics: dict[str, Metric | str]) -> dict[str, Metric]:
    """Returns the metrics of a line as numbers. Raises `ValueError` for a value that no report can hold."""
    numbers = metrics_from_json(metrics)
    if any(isinstance(value, int) and not -MAX_INT <= value <= MAX_INT for value in numbers.values()):
        raise ValueError("a metric is beyond 64 bits")
    return numbers


class Beside(msgspec.Struct):
    """The parts of a report that are no numbers of its series."""

    fields: dict[str, Any]
    """The fields of `Report`, as its line has them."""
    names: list[str]
    """The names of the metrics to which they belong."""


def to_beside(report: Report) -> str | None:
    """Returns as JSON what is kept of a report besides its points, or None.

    Raises `ValueError` for a value that could not be read back.
    """
    for batch in report.batch_metrics or ():
        metrics_from_json(batch)
    from_json(report.json_metrics)
    parts = zip(_FIELDS_BESIDE, parts_beside(report), strict=True)
    fields = {field.name: part for field, part in parts if part != field.default}
    if not fields:
        return None
    names = [*(report.json_metrics or ()), *(report.metrics if fields.keys() - {"json_metrics"} else ())]
    return msgspec.json.encode(Beside(fields, names)).decode()


def from_beside(text: str, time: float, group: str, steps: int, numbers: dict[str, Any]) -> Report:
    """Returns the report of these numbers, with the parts that `to_beside` has kept."""
    return Report(time, group, steps, numbers, **json_decoder(Beside)(text).fields)


def names_beside(text: str | None) -> set[str]:
    """Returns the names of the metrics to which belongs what `to_beside` has kept."""
    return set() if text is None else set(json_decoder(Beside)(text).names)
