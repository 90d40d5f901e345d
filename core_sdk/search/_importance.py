"""The importance of hyperparameters, as a pure function of trials."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_NUM_BINS = 8
_LEAST_TRIALS = 4


class Importance(msgspec.Struct, frozen=True):
    name: str
    share: float
    """The part of the variance of the metric's ranks that the hyperparameter alone explains: 0 is nothing, 1 is all."""
    correlation: float | None
    """The correlation between the ranks of both: -1 to 1; None for a hyperparameter that is not a number."""
    num_values: int


def importances(trials: Sequence[tuple[Mapping[str, Any], float]]) -> list[Importance]:
    """Returns the importance of each hyperparameter, the most important first; constants are left out.

    `trials` holds the hyperparameters and the metric of each trial.

    Ranks take the place of values, so that one bad trial does not drown the others. Numbers fall into at most 8 bins
    of about equal size; the share is the variance between bins (eta squared), corrected for its growth with their
    number as in adjusted R squared. Hyperparameters that only matter together are not told apart.
    """
    finite = [(hparams, value) for hparams, value in trials if math.isfinite(value)]
    names = dict.fromkeys(name for hparams, _ in finite for name in hparams)
    found = [_importance(name, finite) for name in names]
    return sorted((one for one in found if one is not None), key=lambda one: -one.share)


def _importance(name: str, trials: Sequence[tuple[Mapping[str, Any], float]]) -> Importance | None:
    pairs = [(hparams[name], value) for hparams, value in trials if hparams.get(name) is not None]
    values = [value for value, _ in pairs]
    if len(pairs) < _LEAST_TRIALS or len(set(map(repr, values))) < 2:
        return None
    metric = _ranks([value for _, value in pairs])
    is_number = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    ranks = _ranks(values) if is_number else None
    bins = _bins(ranks) if ranks else [repr(value) for value in values]
    return Importance(
        name,
        round(_explained(bins, metric), 4),
        None if ranks is None else round(_correlation(ranks, metric), 4),
        len(set(map(repr, values))),
    )


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value; equal values share the mean of their ranks."""
    places = defaultdict(list)
    for place, index in enumerate(sorted(range(len(values)), key=lambda index: values[index])):
        places[values[index]].append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _bins(ranks: Sequence[float]) -> list[Any]:
    if len(set(ranks)) <= _NUM_BINS:
        return list(ranks)
    num_bins = min(_NUM_BINS, max(2, len(ranks) // _LEAST_TRIALS))
    return [int(rank * num_bins / len(ranks)) for rank in ranks]


def _explained(bins: Sequence[Any], metric: Sequence[float]) -> float:
    members = defaultdict(list)
    for bin_, value in zip(bins, metric, strict=True):
        members[bin_].append(value)
    mean = sum(metric) / len(metric)
    total = sum((value - mean) ** 2 for value in metric)
    between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in members.values())
    free = len(metric) - len(members)
    if total == 0 or free <= 0:
        return 0.0
    return max(0.0, 1 - (1 - between / total) * (len(metric) - 1) / free)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    mean = (len(first) - 1) / 2
    product = sum((one - mean) * (other - mean) for one, other in zip(first, second, strict=True))
    scale = math.sqrt(sum((one - mean) ** 2 for one in first) * sum((other - mean) ** 2 for other in second))
    return product / scale if scale else 0.0
