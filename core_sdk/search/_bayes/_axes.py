"""The features of a point, of which the model's function is a weighted sum."""

from __future__ import annotations

from collections.abc import Sequence

from core_sdk._ground.config.hyperparameters import Categorical, Hyperparameter, Int

MAX_CATEGORIES = 16
"""A hyperparameter of more values than this is left to chance."""
_MAX_CROSSED = 12
"""With more axes than this, a hyperparameter's effect does not depend on others."""
_MAX_CURVED = 30
"""With more axes than this, effects are linear, and the same at all rungs."""
_MAX_SNAPPED = 1000
_SQUARE, _CROSS, _RUNG = 0.75, 0.3, 0.18
"""How much a weight of these features is expected to matter, relative to the slope along an axis."""


class Axes:
    """Describes points, of which each coordinate is a number from 0 to 1, by features around 0.

    A number is one axis, from -1 to 1. A categorical hyperparameter has an axis for each value, or one for two values.
    """

    def __init__(self, leaves: Sequence[Hyperparameter]) -> None:
        """`leaves` are the hyperparameters of the space that vary."""
        self._leaves = leaves
        num_axes = len(self._along([0.0] * len(leaves)))
        self._has_crosses = num_axes <= _MAX_CROSSED
        self._is_curved = num_axes <= _MAX_CURVED
        self.num_features = len(self.features([0.0] * len(leaves), 1))

    def snapped(self, point: Sequence[float]) -> list[float]:
        """Returns the point with each coordinate in the middle of those that stand for the same value."""
        return [_snapped(leaf, coordinate) for leaf, coordinate in zip(self._leaves, point, strict=True)]

    def features(self, point: Sequence[float], num_above: int) -> list[float]:
        """Returns the features of a result `num_above` rungs below the top. At the top, those of rungs are left out."""
        axes = self._along(point)
        bends = [_SQUARE * (axis * axis - 1 / 3) for axis in axes] if self._is_curved else []
        features = [1.0, *axes, *bends]
        if self._has_crosses:
            for index, first in enumerate(axes):
                scaled = _CROSS * first
                features += [scaled * second for second in axes[:index]]
        if num_above and self._is_curved:
            gap = _RUNG * num_above
            features += [gap, *(gap * axis for axis in axes), *(gap * bend for bend in bends)]
        return features

    def _along(self, point: Sequence[float]) -> list[float]:
        axes = []
        for leaf, coordinate in zip(self._leaves, point, strict=True):
            num_values = len(leaf.vals) if isinstance(leaf, Categorical) else 0
            if num_values == 0:
                axes.append(2 * coordinate - 1)
            elif num_values == 2:
                axes.append(1.0 if coordinate >= 0.5 else -1.0)
            elif 2 < num_values <= MAX_CATEGORIES:
                chosen = int(coordinate * num_values)
                axes += [(index == chosen) - 1 / num_values for index in range(num_values)]
        return axes


def _snapped(leaf: Hyperparameter, coordinate: float) -> float:
    match leaf:
        case Categorical(vals):
            num_values = len(vals)
        case Int(minval, maxval) if maxval - minval < _MAX_SNAPPED:
            num_values = maxval - minval + 1
        case _:
            return coordinate
    return (int(coordinate * num_values) + 0.5) / num_values
