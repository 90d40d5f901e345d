"""The metrics that train and validation functions return, and their means over the workers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from core_sdk._ground.records import number_of

Metrics = dict[str, Any]
"""Numbers, or nested metrics, by their names."""


class Measured(NamedTuple):
    """The metrics that the function has returned on one worker."""

    metrics: Metrics
    num_samples: int
    """The number of samples that this worker has seen, which is the weight of its metrics."""


def as_numbers(returned: Any, function: str) -> Metrics:
    """Returns the metrics, with tensors as numbers. Raises `TypeError` for a value that is not a number."""
    if not isinstance(returned, Mapping):
        raise TypeError(f"{function} returned {_kind(returned)}; it must return a dict of metrics")
    return {str(name): _as_number(value, str(name), function) for name, value in returned.items()}


def _as_number(value: Any, name: str, function: str) -> Any:
    if isinstance(value, Mapping):
        return {str(inner): _as_number(each, f"{name}.{inner}", function) for inner, each in value.items()}
    if (number := number_of(value)) is None:
        raise TypeError(
            f"{function} returned {_kind(value)} as metric {name!r}; a metric is a number, or a tensor with one element"
        )
    return number


def mean(measured: Sequence[Measured], function: str) -> Metrics:
    """Returns the mean over all samples of all workers. Raises `ValueError` if the workers have different metrics."""
    seen = [each for each in measured if each.num_samples] or measured
    weights = [each.num_samples or 1 for each in seen]
    return _mean([each.metrics for each in seen], weights, function, "")


def _mean(rows: Sequence[Metrics], weights: Sequence[int], function: str, place: str) -> Metrics:
    names = rows[0].keys()
    for row in rows:
        if row.keys() != names:
            differing = ", ".join(f"{place}{name}" for name in sorted(row.keys() ^ names))
            raise ValueError(f"{function} returned different metrics on different workers: only some have {differing}")
    return {name: _mean_of(f"{place}{name}", [row[name] for row in rows], weights, function) for name in names}


def _mean_of(name: str, values: Sequence[Any], weights: Sequence[int], function: str) -> Any:
    if any(isinstance(value, dict) for value in values):
        if not all(isinstance(value, dict) for value in values):
            raise ValueError(f"{function} returned a number as {name} on some workers, and several on others")
        return _mean(values, weights, function, f"{name}.")
    if all(value == values[0] for value in values):
        return values[0]
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)


def flat(metrics: Metrics, place: str = "") -> dict[str, float]:
    """Returns the metrics without nesting, with a dotted name for each number, such as `model_0.loss`."""
    numbers: dict[str, float] = {}
    for name, value in metrics.items():
        numbers |= flat(value, f"{place}{name}.") if isinstance(value, dict) else {f"{place}{name}": value}
    return numbers


def _kind(value: object) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if shape is not None else "")
