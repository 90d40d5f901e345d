"""Points of a hyperparameter space: random samples, or all points of a grid.

A point depends only on the search's seed and the point's index. A search that continues after a restart therefore needs
to know only how many points it has made. Hyperparameters are drawn in the order of their names.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from typing import Any
from uuid import UUID

from core_sdk._ground.config.hyperparameters import (
    Categorical,
    Const,
    Double,
    Hyperparameter,
    HyperparameterSpace,
    Int,
    Log,
    nested,
    num_points,
)
from core_sdk.search._operations import Create


class Points(ABC):
    """Makes the trials of a search, one after the other."""

    def __init__(self, space: HyperparameterSpace, seed: int) -> None:
        self._leaves = list(space.leaves())
        self._seed = seed
        self.num_made = 0

    def next(self) -> Create:
        """Returns the next trial. Its request id follows from the seed, too."""
        rng = random.Random(self._seed << 64 | self.num_made)
        request_id = UUID(int=rng.getrandbits(128), version=4)
        hparams = self._hparams(self.num_made, rng)
        self.num_made += 1
        return Create(request_id, hparams)

    @abstractmethod
    def _hparams(self, index: int, rng: random.Random) -> dict[str, Any]: ...


class SampledPoints(Points):
    """Points that are sampled at random."""

    @property
    def vary(self) -> bool:
        """Whether one point differs from another."""
        return any(not isinstance(leaf, Const) for _, leaf in self._leaves)

    def _hparams(self, index: int, rng: random.Random) -> dict[str, Any]:
        return nested((path, sample(leaf, rng)) for path, leaf in self._leaves)


class GridPoints(Points):
    """The points of a grid; the last name of the space varies fastest."""

    def __init__(self, space: HyperparameterSpace, seed: int) -> None:
        super().__init__(space, seed)
        self._values = [(path, grid_values(leaf)) for path, leaf in self._leaves]

    @property
    def num_points(self) -> int:
        return math.prod(len(values) for _, values in self._values)

    def _hparams(self, index: int, rng: random.Random) -> dict[str, Any]:
        chosen = []
        for path, values in reversed(self._values):
            index, position = divmod(index, len(values))
            chosen.append((path, values[position]))
        return nested(reversed(chosen))


def sample(leaf: Hyperparameter, rng: random.Random) -> Any:
    """Returns a random value. Uses only `rng.random()`, which gives the same numbers in every version of Python."""
    match leaf:
        case Const():
            return leaf.val
        case Categorical():
            return leaf.vals[int(rng.random() * len(leaf.vals))]
        case Int():
            return min(leaf.minval + int(rng.random() * (leaf.maxval - leaf.minval + 1)), leaf.maxval)
        case Double():
            return leaf.minval + rng.random() * (leaf.maxval - leaf.minval)
        case Log():
            return float(leaf.base ** (leaf.minval + rng.random() * (leaf.maxval - leaf.minval)))


def grid_values(leaf: Hyperparameter) -> list[Any]:
    """Returns the values of a hyperparameter in a grid. Raises `ValueError` for a range without a `count`."""
    match leaf:
        case Const():
            return [leaf.val]
        case Categorical():
            return list(leaf.vals)
        case Int():
            return [leaf.minval + math.floor((leaf.maxval - leaf.minval) * part + 0.5) for part in _parts(leaf)]
        case Double():
            return [_between(leaf, part) for part in _parts(leaf)]
        case Log():
            return [float(leaf.base ** _between(leaf, part)) for part in _parts(leaf)]


def _parts(leaf: Int | Double | Log) -> list[float]:
    """Returns `count` evenly spaced numbers from 0 to 1, or only 0.5 if `count` is 1."""
    if (count := num_points(leaf)) is None:
        raise ValueError(f"a grid needs a count for every range: {leaf}")
    return [0.5] if count == 1 else [index / (count - 1) for index in range(count)]


def _between(leaf: Double | Log, part: float) -> float:
    return leaf.minval * (1 - part) + leaf.maxval * part
