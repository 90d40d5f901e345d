"""Confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_sdk._ground.records import Media, check_text
from core_sdk.errors import MediaError
from core_sdk.media._content import described, encode_json

_MAX_CLASSES = 1000


class ConfusionMatrix(Media):
    """Counts how often each class was predicted as each: a row for each true class, a column for each prediction."""

    def __init__(
        self,
        matrix: Any = None,
        *,
        targets: Any = None,
        predictions: Any = None,
        labels: Sequence[str] | None = None,
        caption: str = "",
    ) -> None:
        """Takes a `matrix` of counts, or counts `targets` and `predictions`: classes as integers, from 0.

        `labels` names the classes. Raises `MediaError`, `MediaTooLargeError` or `MissingDependencyError`.
        """
        from core_sdk.media._arrays import as_array
        from core_sdk.media._counting import count_pairs

        kind = "confusion_matrix"
        if (matrix is None) == (targets is None) or (targets is None) != (predictions is None):
            raise MediaError(kind, "needs either a matrix, or targets and predictions")
        if matrix is None:
            num_classes = None if labels is None else len(labels)
            rows = count_pairs(targets, predictions, num_classes)
        else:
            array = as_array(kind, matrix)
            if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
                raise MediaError(kind, f"is made from an array of shape {array.shape}; it must be square")
            rows = array.tolist()
        if len(rows) > _MAX_CLASSES or (labels is not None and len(labels) != len(rows)):
            named = "no labels" if labels is None else f"{len(labels)} labels"
            raise MediaError(kind, f"has {len(rows)} classes and {named}; there must be at most {_MAX_CLASSES}")
        if any(not 0 <= number < float("inf") for row in rows for number in row):
            raise MediaError(kind, "has a count below 0, or one that is not finite")
        names = [check_text("the label", label) for label in labels or range(len(rows))]
        content = encode_json(kind, {"labels": names, "matrix": rows})
        super().__init__(described(kind, "application/json", content, caption), content)
