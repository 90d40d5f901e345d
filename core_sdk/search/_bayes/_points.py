"""Points that a model chooses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec

from core_sdk._ground.config.hyperparameters import Categorical, HyperparameterSpace
from core_sdk._ground.decoding import convert
from core_sdk.search._bayes._axes import Axes
from core_sdk.search._bayes._regression import Posterior, Regression, dot, normal
from core_sdk.search._bayes._targets import RungResult, targets
from core_sdk.search._points import SampledPoints
from core_sdk.search._scores import Score

MIN_RESULTS = 5
"""The number of results from which on the model chooses."""
_RANDOM = 0.1
"""The share of points that are random nevertheless, so that no part of the space is given up for ever."""
_NUM_CANDIDATES = 200
_NUM_PARENTS = 8
_STEP = 0.15
"""The standard deviation of a step away from a good point."""


class ModelState(msgspec.Struct):
    """The points and results that the model is fitted to."""

    made: dict[UUID, list[float]] = {}
    """The points of the trials: for each hyperparameter that varies, a number from 0 to 1."""
    results: list[RungResult] = []
    """All results, in the order in which they came."""


class ModelledPoints(SampledPoints):
    """Points where a function, drawn from what the model holds for possible, is best.

    The candidates are random points, and as many that lie near the best ones so far. The model is fitted to the first n
    results, for growing n: each time while there are few, later each time that 2 % more have come, so that the cost of
    all fits grows with the number of results and not with its square.
    """

    def __init__(self, space: HyperparameterSpace, seed: int) -> None:
        super().__init__(space, seed)
        self._axes = Axes(self._varying)
        self._state = ModelState()
        self._regression = Regression(self._axes.num_features)
        self._posterior: Posterior | None = None
        self._parents: list[list[float]] = []
        """The best points, when the model was last fitted."""

    def observe(self, request_id: UUID, num_above: int, score: Score) -> None:
        self._state.results.append(RungResult(request_id, num_above, score))

    def encode(self) -> Any:
        return msgspec.to_builtins(self._state)

    def decode(self, encoded: Any) -> None:
        self._state = convert(encoded, ModelState)

    def _point(self, request_id: UUID, rng: random.Random) -> list[float]:
        point = super()._point(request_id, rng)
        if self._varying and len(self._state.results) >= MIN_RESULTS and rng.random() >= _RANDOM:
            weights = self._fitted().draw(rng)
            point = max(self._candidates(rng), key=lambda point: dot(self._axes.features(point, 0), weights))
        self._state.made[request_id] = self._axes.snapped(point)
        return point

    def _fitted(self) -> Posterior:
        """Returns the model, fitted to as many of the results as `fitted_number` says."""
        num_fitted = fitted_number(len(self._state.results), len(self._regression))
        if self._posterior is not None and num_fitted == len(self._regression):
            return self._posterior
        results = self._state.results[:num_fitted]
        for one in results[len(self._regression) :]:
            self._regression.add(self._axes.features(self._state.made[one.request_id], one.num_above))
        goodness = targets(results)
        order = sorted(range(num_fitted), key=lambda index: -goodness[index])
        self._parents = [self._state.made[results[index].request_id] for index in order[:_NUM_PARENTS]]
        self._posterior = self._regression.posterior(goodness)
        return self._posterior

    def _candidates(self, rng: random.Random) -> Iterator[list[float]]:
        for index in range(_NUM_CANDIDATES):
            if index % 2:
                parent = self._parents[int(rng.random() * len(self._parents))]
                yield self._axes.snapped(self._near(parent, rng))
            else:
                yield self._axes.snapped([rng.random() for _ in self._varying])

    def _near(self, parent: list[float], rng: random.Random) -> list[float]:
        """Returns a point of which about half of the coordinates are the parent's."""
        point = list(parent)
        for index, leaf in enumerate(self._varying):
            luck = rng.random()
            if isinstance(leaf, Categorical):
                if luck < 0.25:
                    point[index] = rng.random()
            elif luck < 0.5:
                point[index] = reflected(parent[index] + _STEP * normal(rng))
        return point


def fitted_number(num_results: int, num_before: int) -> int:
    """Returns the number of results to fit the model to, given that of an earlier fit, or 0: one of a fixed series."""
    number = max(num_before, MIN_RESULTS)
    while (following := number + max(number // 50, 1)) <= num_results:
        number = following
    return number


def reflected(coordinate: float) -> float:
    """Returns the coordinate, thrown back at the edges of the interval from 0 to 1, in which it then lies."""
    coordinate = abs(coordinate)
    coordinate = 2 - coordinate if coordinate >= 1 else coordinate
    return min(max(coordinate, 0.0), 1 - 2**-20)
