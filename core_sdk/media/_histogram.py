"""Histograms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from core_sdk._ground.records import Media
from core_sdk.errors import MediaError
from core_sdk.media._content import described, encode_json

_MAX_BINS = 1024


class Histogram(Media):
    """A histogram of the values of a tensor or array, such as weights or gradients.

    Infinities and NaN are counted apart.
    """

    def __init__(
        self,
        values: Any = None,
        *,
        num_bins: int = 64,
        counts: Sequence[float] | None = None,
        edges: Sequence[float] | None = None,
        caption: str = "",
    ) -> None:
        """Counts `values` in `num_bins` bins of equal width, or takes `counts` and their `edges` as they are.

        Raises `MediaError`, `MediaTooLargeError` or `MissingDependencyError`.
        """
        from core_sdk.media._arrays import as_array
        from core_sdk.media._counting import count

        num_not_finite = 0
        if (values is None) == (counts is None) or (counts is None) != (edges is None):
            raise MediaError("histogram", "needs either values, or counts with their edges")
        if values is not None:
            if not 1 <= num_bins <= _MAX_BINS:
                raise MediaError("histogram", f"has {num_bins} bins; there must be 1 to {_MAX_BINS}")
            counts, edges, num_not_finite = count(as_array("histogram", values), num_bins)
        else:
            counts = as_array("histogram", counts).astype(float).ravel().tolist()
            edges = as_array("histogram", edges).astype(float).ravel().tolist()
        _check(counts, edges)
        content = encode_json("histogram", {"counts": counts, "edges": edges, "num_not_finite": num_not_finite})
        super().__init__(described("histogram", "application/json", content, caption), content)


def _check(counts: Sequence[float], edges: Sequence[float]) -> None:
    if len(edges) != len(counts) + 1 or not 1 <= len(counts) <= _MAX_BINS:
        problem = f"has {len(counts)} counts and {len(edges)} edges; there must be one edge more, and at most"
        raise MediaError("histogram", f"{problem} {_MAX_BINS} counts")
    if any(not low < high for low, high in pairwise(edges)):
        raise MediaError("histogram", "has edges that do not rise")
    if any(not 0 <= number < float("inf") for number in counts) or not all(map(_is_finite, (edges[0], edges[-1]))):
        raise MediaError("histogram", "has a count below 0, or a count or an edge that is not finite")


def _is_finite(number: float) -> bool:
    return number - number == 0
