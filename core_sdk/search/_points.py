"""Points of a hyperparameter space: random samples, or all points of a grid.

Such a point depends only on the search's seed and the point's index. A search that continues after a restart therefore
needs to know only how many points it has made. Hyperparameters are drawn in the order of their names.
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
from core_sdk.search._scores import Score


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
        hparams = self._hparams(request_id, rng)
        self.num_made += 1
        return Create(request_id, hparams)

    def observe(self, request_id: UUID, num_above: int, score: Score) -> None:
        """Learns a trial's score at a rung that has this number of rungs above it."""
        return

    def encode(self) -> Any:
        """Returns what the points need to continue after a restart besides their number, as JSON values."""
        return None

    def decode(self, encoded: Any) -> None:
        """Restores what `encode` has returned."""
        return

    @abstractmethod
    def _hparams(self, request_id: UUID, rng: random.Random) -> dict[str, Any]: ...


class SampledPoints(Points):
    """Points that are sampled at random."""

    def __init__(self, space: HyperparameterSpace, seed: int) -> None:
        super().__init__(space, seed)
        self._varying = [leaf for _, leaf in self._leaves if not isinstance(leaf, Const)]

    @property
    def vary(self) -> bool:
        """Whether one point differs from another."""
        return bool(self._varying)

    def _hparams(self, request_id: UUID, rng: random.Random) -> dict[str, Any]:
        coordinates = iter(self._point(request_id, rng))
        return nested(
            (path, leaf.val if isinstance(leaf, Const) else value_at(leaf, next(coordinates)))
            for path, leaf in self._leaves
        )

    def _point(self, request_id: UUID, rng: random.Random) -> list[float]:
        """Returns a number from 0 to 1, without 1, for each hyperparameter that varies.

        Uses only `rng.random()`, which gives the same numbers in every version of Python.
        """
        return [rng.random() for _ in self._varying]


class GridPoints(Points):
    """The points of a grid; the last name of the space varies fastest."""

    def __init__(self, space: HyperparameterSpace, seed: int) -> None:
        super().__init__(space, seed)
        self._values = [(path, grid_values(leaf)) for path, leaf in self._leaves]

    @property
    def num_points(self) -> int:
        return math.prod(len(values) for _, values in self._values)

    def _hparams(self, request_id: UUID, rng: random.Random) -> dict[str, Any]:
        chosen, index = [], self.num_made
        for path, values in reversed(self._values):
            index, position = divmod(index, len(values))
            chosen.append((path, values[position]))
        return nested(reversed(chosen))


def value_at(leaf: Categorical | Int | Double | Log, coordinate: float) -> Any:
    """Returns the value at a number from 0 to 1, without 1; the value is random if the number is."""
    match leaf:
        case Categorical():
            return leaf.vals[int(coordinate * len(leaf.vals))]
        case Int():
            return min(leaf.minval + int(coordinate * (leaf.maxval - leaf.minval + 1)), leaf.maxval)
        case Double():
            return leaf.minval + coordinate * (leaf.maxval - leaf.minval)
        case Log():
            return float(leaf.base ** (leaf.minval + coordinate * (leaf.maxval - leaf.minval)))


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
