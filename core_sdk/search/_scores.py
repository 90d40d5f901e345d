"""Scores, which order the metrics of trials from the best to the worst."""

from __future__ import annotations

import math

Score = tuple[int, float]
"""A smaller score is better, also if a larger metric is better."""


EXITED: Score = (2, 0.0)
"""The score of a trial that exited early: worse than all others."""


def is_number(score: Score) -> bool:
    """Returns whether the metric was a finite number. Otherwise the training has diverged or failed."""
    return score[0] == 0


def score_of(metric: float, smaller_is_better: bool) -> Score:
    """Returns the score of a metric. NaN and the infinities are worse than all finite numbers."""
    if not math.isfinite(metric):
        return (1, 0.0)
    return (0, float(metric if smaller_is_better else -metric))
