"""Which reports of earlier attempts a later attempt supersedes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from core_sdk.tracking.index._schema import EVERYTHING


@dataclass(frozen=True)
class AttemptSpan:
    resumed_steps: int | None
    """The step that the attempt went on from; None if unknown."""
    first_steps: Mapping[Hashable, int]
    """For each series that the attempt reports, the first step."""


def visible_until(attempts: Sequence[AttemptSpan]) -> list[dict[Hashable, int]]:
    """For each attempt, in order, and each of its series: the last step that no later attempt supersedes.

    An attempt supersedes what earlier ones reported beyond the step that it resumed from, and, series by series, from
    the first step on that it reports itself.
    """
    result = []
    resumed = EVERYTHING
    repeated: dict[Hashable, int] = {}
    for attempt in reversed(attempts):
        result.append({key: min(resumed, repeated.get(key, EVERYTHING)) for key in attempt.first_steps})
        if attempt.resumed_steps is not None:
            resumed = min(resumed, attempt.resumed_steps)
        for key, first in attempt.first_steps.items():
            repeated[key] = min(repeated.get(key, EVERYTHING), first - 1)
    return result[::-1]
