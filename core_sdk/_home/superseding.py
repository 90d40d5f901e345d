"""Decides which of a trial's reports and checkpoints a later attempt has superseded by going on from an earlier step.

The index also hides each metric of a report that is reported again at its step (`index._repeats`).
"""

from __future__ import annotations

from collections.abc import Mapping

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
