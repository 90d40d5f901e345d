"""The results of a search, made comparable across rungs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from uuid import UUID

import msgspec

from core_sdk.search._scores import Score, is_number

_FLOOR = 0.25
"""The worst quarter of the results counts as equally bad: how bad they are says little about where the best lie."""


class RungResult(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The score of a trial at a rung."""

    request_id: UUID
    num_above: int
    """The number of rungs above it."""
    score: Score


def targets(results: Sequence[RungResult]) -> list[float]:
    """Returns for each result how good it is, with mean 0 and variance 1. What is no number is among the worst.

    Metrics of a higher rung are better only because training went on: what the trials that have reached both rungs
    have typically gained (the median) is taken off. The others' results of that rung stay comparable, although only the
    best trials get there.
    """
    offsets = _offsets(results)
    values = [-one.score[1] - offsets[one.num_above] if is_number(one.score) else None for one in results]
    finite = sorted(value for value in values if value is not None)
    if not finite:
        return [0.0] * len(values)
    floor = finite[int(_FLOOR * (len(finite) - 1))]
    clipped = [floor if value is None else max(value, floor) for value in values]
    scale = max(abs(value) for value in clipped) or 1.0
    mean = math.fsum(value / scale for value in clipped) / len(clipped)
    centred = [value / scale - mean for value in clipped]
    deviation = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
    return [value / deviation if deviation > 1e-12 else 0.0 for value in centred]


def _offsets(results: Sequence[RungResult]) -> dict[int, float]:
    """Returns for each rung what is typically gained on the way to it."""
    by_rung: dict[int, dict[UUID, float]] = {}
    for one in results:
        of_rung = by_rung.setdefault(one.num_above, {})
        if is_number(one.score):
            of_rung[one.request_id] = -one.score[1]
    offsets: dict[int, float] = {}
    below: dict[UUID, float] = {}
    offset = 0.0
    for num_above in sorted(by_rung, reverse=True):
        at = by_rung[num_above]
        if gains := sorted(value - below[request_id] for request_id, value in at.items() if request_id in below):
            offset += gains[len(gains) // 2]
        offsets[num_above] = offset
        below = at
    return offsets
