"""Makes the method that a configuration names."""

from __future__ import annotations

from typing import Any

from core_sdk._ground.config.hyperparameters import HyperparameterSpace
from core_sdk._ground.config.searchers import (
    AdaptiveAshaSearcher,
    AsyncHalvingSearcher,
    GridSearcher,
    RandomSearcher,
    SearcherConfig,
    SingleSearcher,
)
from core_sdk.search._bayes import ModelledPoints
from core_sdk.search._halving import (
    Halving,
    PromotingHalving,
    StoppingHalving,
    Tournament,
    bracket_depths,
    brackets,
    rung_lengths,
)
from core_sdk.search._method import Independent, Method
from core_sdk.search._points import GridPoints, Points, SampledPoints


def open_method(searcher: SearcherConfig, space: HyperparameterSpace, seed: int) -> tuple[Points, Method]:
    """Returns the points from which a configured search makes its trials, and its method."""
    if isinstance(searcher, GridSearcher):
        grid = GridPoints(space, seed)
        concurrent = searcher.max_concurrent_trials or grid.num_points
        return grid, Independent(grid, grid.num_points, concurrent, length=_length(searcher), replaces=False)
    chosen_by = getattr(searcher, "sampler", "random")
    points = ModelledPoints(space, seed) if chosen_by == "bayes" else SampledPoints(space, seed)
    match searcher:
        case SingleSearcher():
            method: Method = Independent(points, 1, 1, length=_length(searcher), replaces=points.vary)
        case RandomSearcher():
            concurrent = searcher.max_concurrent_trials or searcher.max_trials
            method = Independent(
                points, searcher.max_trials, concurrent, length=_length(searcher), replaces=points.vary
            )
        case AsyncHalvingSearcher():
            method = _async_halving(points, searcher)
        case AdaptiveAshaSearcher():
            method = _adaptive_asha(points, searcher)
        case _:
            raise TypeError(f"{type(searcher).__name__} names no built-in method")
    return points, method


def _async_halving(points: SampledPoints, searcher: AsyncHalvingSearcher) -> Halving:
    concurrent = searcher.max_concurrent_trials
    if concurrent == 0:
        concurrent = min(int(searcher.divisor ** (searcher.num_rungs - 1)), searcher.max_trials)
    return _halving(points, searcher, searcher.num_rungs, searcher.max_trials, max(concurrent, 1))


def _adaptive_asha(points: SampledPoints, searcher: AdaptiveAshaSearcher) -> Tournament:
    depths = list(searcher.bracket_rungs) or bracket_depths(
        searcher.mode,
        max_rungs=searcher.max_rungs,
        max_length=_top(searcher),
        max_trials=searcher.max_trials,
        divisor=searcher.divisor,
    )
    shares = brackets(
        depths,
        max_trials=searcher.max_trials,
        max_concurrent=searcher.max_concurrent_trials,
        divisor=searcher.divisor,
    )
    return Tournament(
        [_halving(points, searcher, share.num_rungs, share.max_trials, share.max_concurrent) for share in shares]
    )


def _halving(
    points: SampledPoints,
    searcher: AsyncHalvingSearcher | AdaptiveAshaSearcher,
    num_rungs: int,
    max_trials: int,
    max_concurrent: int,
) -> Halving:
    is_ordering = searcher.max_length is not None
    kind = PromotingHalving if is_ordering and not searcher.stop_once else StoppingHalving
    return kind(
        points,
        max_trials,
        max_concurrent,
        lengths=rung_lengths(_top(searcher), num_rungs, searcher.divisor),
        divisor=searcher.divisor,
        orders=is_ordering,
        replaces=points.vary,
    )


def _top(searcher: AsyncHalvingSearcher | AdaptiveAshaSearcher) -> int:
    """Returns the length of the highest rung."""
    if searcher.max_length is not None:
        return searcher.max_length.value
    if searcher.max_time is None:
        raise ValueError(f"{type(searcher).__name__} has neither max_time nor max_length")
    return searcher.max_time


def _length(searcher: Any) -> int | None:
    return None if searcher.max_length is None else searcher.max_length.value
