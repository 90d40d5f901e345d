"""Decides which of a trial's reports and checkpoints a later attempt has superseded."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

EVERYTHING = 2**63 - 1
"""The last step of what nothing supersedes."""


def kept_until(resumed_steps: Mapping[int, int | None]) -> dict[int, int]:
    """Returns, for each attempt, the last step that no later attempt has superseded by resuming from an earlier step.

    `resumed_steps` has the step that each attempt resumed from, or None where that is not known.
    """
    kept, last = {}, EVERYTHING
    for attempt in sorted(resumed_steps, reverse=True):
        kept[attempt] = last
        if (steps := resumed_steps[attempt]) is not None:
            last = min(last, steps)
    return kept


@dataclass(frozen=True)
class AttemptSpan:
    resumed_steps: int | None
    """The step that the attempt resumed from; None if unknown."""
    first_steps: Mapping[Hashable, int]
    """The first step of each series that the attempt reports."""


def visible_until(attempts: Sequence[AttemptSpan]) -> list[dict[Hashable, int]]:
    """Returns, for each attempt in order, the last step of each of its series that no later attempt supersedes.

    An attempt supersedes what earlier ones reported beyond the step that it resumed from. In each series that it
    reports itself, it also supersedes everything from its own first step on.
    """
    kept = kept_until({number: attempt.resumed_steps for number, attempt in enumerate(attempts)})
    result = []
    repeated: dict[Hashable, int] = {}
    for number, attempt in reversed(list(enumerate(attempts))):
        result.append({key: min(kept[number], repeated.get(key, EVERYTHING)) for key in attempt.first_steps})
        for key, first in attempt.first_steps.items():
            repeated[key] = min(repeated.get(key, EVERYTHING), first - 1)
    return result[::-1]
