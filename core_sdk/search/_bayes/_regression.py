"""Bayesian linear regression. Sums are loops, since `sum` rounds in other ways in other versions of Python."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

NOISE = 0.15
"""The variance of a result around the function, relative to the prior variance of a weight, which is 1."""
SPREAD = 1.5
"""The factor by which draws are wider than the posterior: the model itself is only an approximation."""


@dataclass(frozen=True)
class Posterior:
    """The distribution of the weights, given the results."""

    mean: list[float]
    factor: list[list[float]]
    """The lower triangle of the Cholesky factor of the inverse of the covariance."""

    def draw(self, rng: random.Random) -> list[float]:
        """Returns weights that are drawn at random."""
        noise = [SPREAD * normal(rng) for _ in self.mean]
        return [mean + offset for mean, offset in zip(self.mean, _solved_upper(self.factor, noise), strict=True)]


class Regression:
    """Sums up the features of results, one after the other."""

    def __init__(self, num_features: int) -> None:
        self._features: list[list[float]] = []
        self._gram = [[0.0] * (index + 1) for index in range(num_features)]
        """The lower triangle of the sum of the products of features."""

    def __len__(self) -> int:
        return len(self._features)

    def add(self, features: list[float]) -> None:
        """Adds a result. Features that are left out at the end are 0."""
        self._features.append(features)
        for row, first in zip(self._gram, features, strict=False):
            if first:
                for index in range(len(row)):
                    row[index] += first * features[index]

    def posterior(self, targets: Sequence[float]) -> Posterior:
        """Returns what the targets of all results, in the order in which they were added, say about the weights."""
        moments = [0.0] * len(self._gram)
        for features, target in zip(self._features, targets, strict=True):
            if target:
                for index, feature in enumerate(features):
                    moments[index] += feature * target
        precision = [[value / NOISE for value in row] for row in self._gram]
        for index, row in enumerate(precision):
            row[index] += 1.0
        factor = _cholesky(precision)
        mean = _solved_upper(factor, _solved_lower(factor, [moment / NOISE for moment in moments]))
        return Posterior(mean, factor)


def normal(rng: random.Random) -> float:
    """Returns a number that is nearly normally distributed: a sum of uniform ones, which needs no logarithm."""
    total = -6.0
    for _ in range(12):
        total += rng.random()
    return total


def dot(features: Sequence[float], weights: Sequence[float]) -> float:
    """Returns the weighted sum of the features. Features that are left out at the end are 0."""
    total = 0.0
    for feature, weight in zip(features, weights, strict=False):
        total += feature * weight
    return total


def _cholesky(matrix: Sequence[list[float]]) -> list[list[float]]:
    """Returns the lower triangle L for which L times its transpose is the matrix, given as its lower triangle."""
    factor: list[list[float]] = []
    for row in matrix:
        new: list[float] = []
        for value, above in zip(row, factor, strict=False):
            new.append((value - dot(new, above)) / above[-1])
        new.append(math.sqrt(row[-1] - dot(new, new)))
        factor.append(new)
    return factor


def _solved_lower(factor: Sequence[list[float]], values: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for row, value in zip(factor, values, strict=True):
        solved.append((value - dot(solved, row)) / row[-1])
    return solved


def _solved_upper(factor: Sequence[list[float]], values: Sequence[float]) -> list[float]:
    solved = list(values)
    for index in reversed(range(len(solved))):
        row = factor[index]
        at = solved[index] = solved[index] / row[-1]
        for below in range(index):
            solved[below] -= row[below] * at
    return solved
