"""Counts values in bins and pairs of classes in a matrix."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from core_sdk.errors import MediaError
from core_sdk.media._arrays import as_array


def count(values: NDArray[Any], num_bins: int) -> tuple[list[int], list[float], int]:
    """Returns the counts, the edges of the bins, and how many values are not finite."""
    numbers = values.astype(numpy.float64).ravel()
    finite = numbers[numpy.isfinite(numbers)]
    span = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    try:
        counts, edges = numpy.histogram(finite, num_bins, span)
    except ValueError as error:  # the values lie too close together, or too far apart, for so many bins
        raise MediaError("histogram", f"cannot be counted: {error}") from error
    return counts.tolist(), edges.tolist(), int(numbers.size - finite.size)


def count_pairs(targets: Any, predictions: Any, num_classes: int | None) -> list[list[int]]:
    """Returns how often each class was predicted as each: a row for each class, a column for each prediction."""
    rows, columns = (as_array("confusion_matrix", one).ravel() for one in (targets, predictions))
    if rows.shape != columns.shape or rows.size == 0:
        problem = f"has {rows.size} targets and {columns.size} predictions; there must be one of each, or more"
        raise MediaError("confusion_matrix", problem)
    if rows.dtype.kind not in "biu" or columns.dtype.kind not in "biu":
        raise MediaError("confusion_matrix", "has classes that are not integers, counted from 0")
    num_classes = num_classes or 1 + int(max(rows.max(), columns.max()))
    low, high = min(rows.min(), columns.min()), max(rows.max(), columns.max())
    if low < 0 or high >= num_classes:
        raise MediaError("confusion_matrix", f"has classes {low} to {high}; they must be 0 to {num_classes - 1}")
    pairs = rows.astype(numpy.int64) * num_classes + columns.astype(numpy.int64)
    matrix: list[list[int]] = numpy.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes).tolist()
    return matrix
