"""Metrics of trials in their order, from the best to the worst."""

from __future__ import annotations

import math

Score = tuple[int, float]
"""A smaller one is better, whichever way the metric is read."""


EXITED: Score = (2, 0.0)
"""The score of a trial that exited early: worse than all others."""


def is_number(score: Score) -> bool:
    """Whether the metric was a finite number. The training of other trials has diverged or failed."""
    return score[0] == 0


def score_of(metric: float, smaller_is_better: bool) -> Score:
    """NaN and the infinities are worse than all numbers."""
    if not math.isfinite(metric):
        return (1, 0.0)
    return (0, float(metric if smaller_is_better else -metric))
